"""Chebyshev Moment Regularization."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn

from cmr_runner.checks import number, require
from cmr_runner.regularizers.gradient_penalty import GradientPenalty
from cmr_runner.regularizers.layers import Layer, LayerRule
from cmr_runner.regularizers.mixing import Mixing
from cmr_runner.regularizers.processes import Group
from cmr_runner.regularizers.turns import Rounds, round_lengths
from cmr_runner.spectral import LayerPenalty, PenaltySpec
from cmr_runner.spectral.engines import Engine, build_engine
from cmr_runner.spectral.moments import GramReading


class CMR(GradientPenalty):
    """λ Σ_layers (α₁ρ_cond + α₂ρ_moment), mixed into the task's gradient under a cap.

        cmr = CMR(model, lam=0.02)  # once
        loss.backward(); cmr.add_gradients(); optimizer.step()

    It leaves the model as it is: no buffers, no hooks, nothing in its state_dict. The defaults are the paper's, except
    for its warm-up of two epochs, because the constructor does not know how long an epoch is: give `warmup_steps`, or
    `warmup` in epochs of `steps_per_epoch` steps. process_group: the processes that hold the same weights and gradients
    (DDP) and share the spectral work. layers: which weights are regularised, see `LayerRule`.

    Call add_gradients() once for each optimiser step: after the last backward if gradients accumulate, and before
    clip_grad_norm_; inside or outside autocast (spectra are computed in float32 or better). With a GradScaler, call
    scaler.unscale_(optimizer) first: the cap compares the norms of the two gradients, so the task's must have its true
    size. `last` has the numbers of the last step. state_dict() has the step counter and what the engine keeps between
    steps.
    """

    method = "cmr"

    def __init__(
        self,
        model: nn.Module,
        *,
        lam: float = 0.02,
        K: int = 5,
        alpha1: float = 1.0,
        alpha2: float = 0.1,
        beta: float = 0.15,
        eps: float = 1e-6,
        gram: GramReading = "short_side",
        rho_spec: float = 0.5,
        mixing: Mixing = "penalty_cap",
        warmup: float = 0.0,
        warmup_steps: float | None = None,
        engine: str | Mapping[str, Any] | Engine = "auto",
        every: int = 1,
        layers: LayerRule | None = None,
        process_group: dist.ProcessGroup | None = None,
        steps_per_epoch: int = 1,
        seed: int = 0,
    ) -> None:
        if warmup_steps is not None:
            require("warmup_steps", warmup_steps, not warmup, "given without warmup, which says the same in epochs")
            warmup = number("warmup_steps", warmup_steps, least=0) / steps_per_epoch
        super().__init__(
            model,
            lam=lam,
            rho_spec=rho_spec,
            mixing=mixing,
            warmup=warmup,
            every=every,
            layers=layers,
            steps_per_epoch=steps_per_epoch,
            seed=seed,
        )
        self.spec = PenaltySpec(K=K, alpha1=alpha1, alpha2=alpha2, beta=beta, eps=eps, gram=gram)
        self.engine = build_engine(engine, seed=seed)
        self.rounds = Rounds(self.round_lengths())
        self.measure = self.spec
        if process_group is not None:
            self.divide_over(Group(process_group))

    def _method_of(self, layer: Layer) -> str:
        return f"{self.method} ({self.engine.name_for(layer.shape)})"

    def __repr__(self) -> str:
        frozen = sum(layer.frozen for layer in self.layers)
        count = f"{len(self.layers)} layers" + (f", {frozen} of them frozen" if frozen else "")
        return f"{type(self).__name__}({count}, lam={self.mixer.lam:g}, engine={self.engine.name})"

    def penalty(self, W: Tensor, *, group: str) -> LayerPenalty:
        options: dict[str, Any] = {}
        if self.rounds.more_than_one:  # an engine with `turns`
            part = self.groups.parts[group]
            options["place"] = (part.first, len(part.members))
        if hasattr(self.engine, "refresh") and self.groups.parametrised(group):
            options["fresh"] = True  # W/σ moves as a whole whenever σ does
        result = self.engine.penalty(W, self.spec, group=group, step=self.step, **options)
        self.observe(group, result)
        return result

    def observe(self, group: str, result: LayerPenalty) -> None:
        """Called with the result of each group, in no fixed order, for subclasses that learn from the moments."""

    def round_lengths(self) -> tuple[int, ...]:
        # `every` saves the work already, and a gradient that is held for several steps should be of all layers.
        return round_lengths(getattr(self.engine, "turns", 1) if self.every == 1 else 1, len(self.layers))

    def forget(self, group: str) -> None:
        if hasattr(self.engine, "forget"):  # one that keeps nothing need not have it
            self.engine.forget(group)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "engine": self.engine.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.engine.load_state_dict(state["engine"])
