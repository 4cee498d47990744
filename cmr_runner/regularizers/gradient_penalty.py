"""A penalty on the layers' matrices that acts through its gradient, mixed in under the cap."""

from __future__ import annotations

import math
from abc import abstractmethod
from functools import partial
from typing import Any, NamedTuple, TypedDict

import torch
from torch import Tensor, nn

from cmr_runner.regularizers.base import Regularizer, StepFigures
from cmr_runner.regularizers.layers import Layer, LayerRule, require_layers, unique_weights
from cmr_runner.regularizers.mixing import CappedMixing, Mixing, global_norm, require_number
from cmr_runner.regularizers.ranks import Ranks, owners
from cmr_runner.spectral.decomposition import NonFiniteError, saturated, working
from cmr_runner.spectral.engines.chunks import shared_workers
from cmr_runner.spectral.engines.workers import Task
from cmr_runner.spectral.penalty import require


class PenaltyOptions(TypedDict, total=False):
    """The keys that mean the same for every penalty, for subclasses that only hand them on."""

    rho_spec: float
    mixing: Mixing
    warmup: float
    every: int
    layers: LayerRule | None
    steps_per_epoch: int
    seed: int


class BatchPenalty(NamedTuple):
    """A penalty of same-shape matrices W (B, m, n)."""

    value: Tensor  # (B,)
    gradient: Tensor  # (B, m, n)
    kappa: Tensor | None = None  # (B,) where the penalty knows both edges
    skipped: int = 0


class GradientPenalty(Regularizer):
    """λ Σ_layers penalty(W), decoupled from the task: g = g_task + g̃ by `CappedMixing`.

    lam, rho_spec, mixing: see CappedMixing. warmup: T_w in epochs of `steps_per_epoch` steps, so with the default
    steps_per_epoch = 1 it is in steps. every: refresh the penalty's gradient every so many steps; between, the last
    one is used again under a fresh cap.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        lam: float,
        rho_spec: float = 0.5,
        mixing: Mixing = "penalty_cap",
        warmup: float = 0.0,
        every: int = 1,
        layers: LayerRule | None = None,
        steps_per_epoch: int = 1,
        seed: int = 0,
    ) -> None:
        super().__init__(model, layers=layers, steps_per_epoch=steps_per_epoch, seed=seed)
        for key, value in (("lam", lam), ("rho_spec", rho_spec), ("warmup", warmup)):
            require_number(f"regularizer.{key}", value)
        require("regularizer.every", every, isinstance(every, int) and every >= 1, "an integer >= 1")
        require_layers(model, self.rule)
        self.mixer = CappedMixing(lam, rho_spec, mixing, warmup * steps_per_epoch)
        self.every = every
        self.step = 0
        self._weights = unique_weights(self.layers)
        self._held: _Spectral | None = None
        self._task: Task[_Evaluation] | None = None
        self.divide_over(Ranks())

    def divide_over(self, ranks: Ranks) -> None:
        """Share the layers with other processes: each computes its own, then they exchange gradients."""
        self.ranks = ranks
        owner = owners([m * n * min(m, n) for m, n in (layer.shape for layer in self.layers)], ranks.size)
        self._groups = same_shape([layer for layer, rank in zip(self.layers, owner, strict=True) if rank == ranks.rank])

    @abstractmethod
    def penalty(self, W: Tensor, *, group: str) -> BatchPenalty:
        """The penalty of same-shape matrices W (B, m, n), at least float32, and its closed-form gradient."""

    @torch.no_grad()
    def add_gradients(self) -> None:
        """Add g̃ to the `.grad` of the regularised parameters. Call after backward (and after GradScaler.unscale_)."""
        trained = [p for p in self.model.parameters() if p.requires_grad]
        norm_task = global_norm([p.grad for p in trained if p.grad is not None])
        spectral = self._spectral()
        lambda_t = self.mixer.lambda_at(self.step)
        norm = global_norm(spectral.gradients)
        factor, cap = self.mixer.factor(norm_task, norm, lambda_t)
        if spectral is self._held:
            add_(spectral.parameters, list(torch._foreach_mul(spectral.gradients, factor)))
        else:  # nobody else's: scaled in place
            torch._foreach_mul_(spectral.gradients, factor)
            add_(spectral.parameters, spectral.gradients)
        self.last = StepFigures(
            norm_task, factor * norm, cap, lambda_t, spectral.penalty, spectral.kappa, spectral.skipped
        )
        self.step += 1

    def start(self) -> None:
        """Begin this step's spectral work beside the forward and backward: it needs the weights alone.

        Not with a parametrised weight: spectral_norm writes its vectors in the forward, so the weight would move.
        """
        if self._due and not any(weight.is_parametrised for weight in self._weights):
            self._task = shared_workers().submit(self._evaluate)

    @property
    def _due(self) -> bool:
        return self._held is None or self.step % self.every == 0

    def _spectral(self) -> _Spectral:
        if self._held is not None and not self._due:
            return self._held
        # Through the workers whether it was started early or not, so that rounding is the same.
        task = self._task if self._task is not None else shared_workers().submit(self._evaluate)
        self._task = None
        fresh = self._pull_back(self._exchange(task))
        self._held = fresh if self.every > 1 else None
        return fresh

    def _evaluate(self) -> _Evaluation:
        """The penalty of this process's layers, each group of the same shape as one batch, the groups side by side."""
        with torch.enable_grad():  # a parametrised weight needs its graph for the pull-back
            effective = {weight.name: weight.effective() for weight in self._weights}
        # The largest first, so that the small ones fill what is left of the time.
        largest_first = sorted(self._groups, key=lambda group: -size(self._groups[group]))
        found = shared_workers().map([partial(self._evaluate_group, group, effective) for group in largest_first])
        results = dict(zip(largest_first, found, strict=True))
        out = _Evaluation(effective, {}, {}, torch.zeros((), device=next(self.model.parameters()).device), 0)
        for group, members in self._groups.items():
            result = results[group]
            names = [layer.name for layer in members]
            out.gradients.update(zip(names, result.gradient, strict=True))
            if result.kappa is not None:
                out.kappa.update(zip(names, result.kappa, strict=True))
            out = out._replace(penalty=out.penalty + result.value.sum(), skipped=out.skipped + result.skipped)
        return out

    def _evaluate_group(self, group: str, effective: dict[str, Tensor]) -> BatchPenalty:
        tensors = [
            layer.weight.matrix(effective[layer.weight.name].detach(), layer.index) for layer in self._groups[group]
        ]
        # A copy, even of a single layer: a penalty may return what it was given as its gradient (L2), to be scaled.
        return self.penalty(torch.stack([working(matrix) for matrix in tensors]), group=group)

    def _exchange(self, task: Task[_Evaluation]) -> _Evaluation:
        """The evaluation of all layers, from every process's own: one sum of one vector in which the rest is zero."""
        if self.ranks.size == 1:
            return task.result()
        try:
            mine = task.result()
        except NonFiniteError:  # said to the others below, who would wait for ever otherwise
            mine = _Evaluation({}, {}, {}, torch.tensor(torch.nan), 0)
        like = mine.penalty
        gradients = [mine.gradients.get(layer.name, like.new_zeros(layer.shape)) for layer in self.layers]
        unknown = {name: like.new_full((), torch.nan) for name in mine.gradients}
        kappa = [(unknown | mine.kappa).get(layer.name, like.new_zeros(())) for layer in self.layers]
        parts = [*gradients, torch.stack(kappa), torch.stack([like, like.new_tensor(float(mine.skipped))])]
        dtype = torch.promote_types(next(self.model.parameters()).dtype, torch.float32)  # the same for every process
        flat = self.ranks.sum_(torch.cat([part.flatten().to(dtype) for part in parts]))
        pieces = flat.split([part.numel() for part in parts])
        penalty, skipped = pieces[-1]
        if torch.isnan(penalty):
            raise NonFiniteError("a layer that one of the processes looks after is not finite")
        names = [layer.name for layer in self.layers]
        whole = {n: piece.view(layer.shape) for n, piece, layer in zip(names, pieces, self.layers, strict=False)}
        known = {n: k for n, k in zip(names, pieces[-2], strict=True) if not torch.isnan(k)}
        return _Evaluation(mine.effective, whole, known, penalty, int(skipped))

    def _pull_back(self, found: _Evaluation) -> _Spectral:
        """The gradients of the layers as gradients in the trainable parameters."""
        parameters: list[nn.Parameter] = []
        pulled: list[Tensor] = []
        for weight in self._weights:
            tensor = found.effective[weight.name]
            pieces = []
            for part, matrix in zip(weight.parts, weight.matrices(tensor), strict=True):
                piece = found.gradients.get(weight.name + part)
                pieces.append(torch.zeros_like(matrix) if piece is None else saturated(piece, tensor.dtype))
            parameters += weight.parameters
            pulled += weight.pull_back(tensor, weight.assembled(pieces, tensor))
        kappa = [found.kappa[layer.name] for layer in self.layers if layer.name in found.kappa]
        return _Spectral(
            parameters, pulled, found.penalty, torch.stack(kappa) if kappa else torch.empty(0), found.skipped
        )

    def state_dict(self) -> dict[str, Any]:
        held = self._held
        return {"step": self.step, "held": None if held is None else held.state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.step = state["step"]
        self._held = None
        if state["held"] is not None:
            parameters = [p for weight in self._weights for p in weight.parameters]
            self._held = _Spectral.from_state(parameters, state["held"])


class _Evaluation(NamedTuple):
    """Effective weights by name; gradients and κ of the layers computed, by name."""

    effective: dict[str, Tensor]
    gradients: dict[str, Tensor]  # (m, n)
    kappa: dict[str, Tensor]  # ()
    penalty: Tensor
    skipped: int


class _Spectral(NamedTuple):
    """The unweighted spectral gradient of a step and what came with it."""

    parameters: list[nn.Parameter]
    gradients: list[Tensor]
    penalty: Tensor
    kappa: Tensor
    skipped: int

    def state(self) -> dict[str, Any]:
        return {**self._asdict(), "parameters": None}

    @classmethod
    def from_state(cls, parameters: list[nn.Parameter], state: dict[str, Any]) -> _Spectral:
        return cls(**{**state, "parameters": parameters})


def same_shape(layers: list[Layer]) -> dict[str, list[Layer]]:
    """Layers by shape, as `256x256`: each group is computed as one batch."""
    groups: dict[str, list[Layer]] = {}
    for layer in layers:
        groups.setdefault(f"{layer.shape[0]}x{layer.shape[1]}", []).append(layer)
    return groups


def size(layers: list[Layer]) -> int:
    """Entries of all matrices."""
    return sum(math.prod(layer.shape) for layer in layers)


def add_(parameters: list[nn.Parameter], gradients: list[Tensor]) -> None:
    """p.grad += g for each pair, making a `.grad` where there is none."""
    present = [(p.grad, g) for p, g in zip(parameters, gradients, strict=True) if p.grad is not None]
    if present:
        torch._foreach_add_([grad for grad, _ in present], [g for _, g in present])
    for p, g in zip(parameters, gradients, strict=True):
        if p.grad is None:
            p.grad = g
