"""CMR that learns its moment weights during training."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from cmr_runner.checks import number
from cmr_runner.regularizers.cmr import CMR
from cmr_runner.spectral import LayerPenalty, moment_weights


class CMRLearned(CMR):
    """Learns which moments to penalise: w_3 ... w_K >= 0 with the fixed total Ω = Σ_k exp(β(k−3)).

    The network descends and the weights ascend the same objective, so the penalty concentrates on the worst moments:

        min_W max_w  Σ_k w_k m_k − τ Ω KL(w/Ω ‖ w⁰/Ω),   m_k = mean over layers of s_k²,  w⁰_k = exp(β(k−3))

    Where layers take turns, m_k is of each layer's last one. For fixed W the inner maximum is w = Ω softmax(log w⁰ +
    m/τ). After each evaluation of the penalty w takes one step of mirror ascent towards it, which in θ = log w is
    exponentiated gradient:

        θ ← (1 − rate) θ + rate (log w⁰ + m/τ),   w = Ω softmax(θ)

    The KL term keeps w inside the simplex; without it the weights run to a vertex and stay there. temperature is τ: a
    large one gives the fixed weights, a small one puts all weight on the largest moment. 1/rate is the memory in steps.

    The weights after an epoch are logged as weight_3 ... weight_K. The logged ρ_moment uses the fixed weights, so that
    it can be compared with other runs.
    """

    method = "cmr_learned"

    def __init__(self, model: nn.Module, *, temperature: float = 0.1, rate: float = 0.01, **options: Any) -> None:
        super().__init__(model, **options)
        self.temperature, self.rate = number("temperature", temperature, above=0), number("rate", rate, above=0, most=1)
        self.prior = moment_weights(self.spec.K, self.spec.beta).log()  # log w⁰, (K−2,)
        self.theta = self.prior.clone()
        self.spec = replace(self.spec, weights=self.weights)
        self._observing = False
        self._squares: dict[str, Tensor] = {}  # s_k² at each layer's last evaluation, by group (B, K−2)

    @property
    def weights(self) -> Tensor:
        """w_3 ... w_K, float64 (K−2,)."""
        return self.prior.exp().sum() * torch.softmax(self.theta, 0)

    def _evaluate(self) -> Any:
        self._observing = True
        if self.rounds.length == 1:  # a step of all layers: what is not among them trains no more
            self._squares = {group: seen for group, seen in self._squares.items() if group in self.groups.parts}
        for group, part in self.groups.parts.items():  # always in the same order: rounding depends on it
            shape = (len(part.members), self.spec.K - 2)
            if group not in self._squares or self._squares[group].shape != shape:
                self._squares[group] = torch.full(shape, torch.nan, dtype=torch.float64)
        return super()._evaluate()

    def observe(self, group: str, result: LayerPenalty) -> None:
        part = self.groups.parts[group]
        self._squares[group][part.first : part.stop] = result.moments[:, 3:].square().double().cpu()

    def forget(self, group: str) -> None:
        super().forget(group)
        self._squares[group].fill_(torch.nan)

    def add_gradients(self) -> None:
        super().add_gradients()
        if self._observing:
            squares = torch.cat([torch.empty(0, self.spec.K - 2, dtype=torch.float64), *self._squares.values()])
            squares = squares[torch.isfinite(squares).all(-1)]  # one that was skipped has nan
            # Summed over the processes that share the layers, so that all of them hold the same weights.
            own = torch.cat([squares.sum(0), torch.tensor([float(len(squares))])])
            total = self.processes.sum_(own.to(self._like.device)).cpu()  # NCCL refuses what is on the CPU
            self._ascend(total[:-1] / total[-1].clamp_min(1))
            self._observing = False

    def _ascend(self, m: Tensor) -> None:
        target = self.prior + m / self.temperature
        self.theta = torch.lerp(self.theta, target, self.rate)
        self.spec = replace(self.spec, weights=self.weights)

    def epoch_columns(self) -> dict[str, float]:
        return {f"weight_{k}": w for k, w in enumerate(self.weights.tolist(), start=3)}

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "theta": self.theta, "squares": dict(self._squares)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.theta = state["theta"].to(self.prior)  # it may have been loaded on the weights' device
        self._squares = {group: squares.cpu().clone() for group, squares in state.get("squares", {}).items()}
        self.spec = replace(self.spec, weights=self.weights)
