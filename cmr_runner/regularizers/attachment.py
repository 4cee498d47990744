"""A regulariser that acts inside `optimizer.step()`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.optim import Optimizer

from cmr_runner.checks import ArgumentError, number

if TYPE_CHECKING:
    from cmr_runner.regularizers.gradient_penalty import GradientPenalty


class Attachment:
    """What `attach` returns: until `remove()`, each optimiser step begins with add_gradients() and the clip."""

    def __init__(self, regularizer: GradientPenalty, optimizer: Optimizer, clip_norm: float | None) -> None:
        if clip_norm is not None:
            number("clip_norm", clip_norm, above=0)
        # Accelerate's wrapper has no hooks of its own, and steps the optimiser inside only when gradients are whole.
        while not hasattr(optimizer, "_optimizer_step_pre_hooks") and hasattr(optimizer, "optimizer"):
            optimizer = optimizer.optimizer
        if not isinstance(optimizer, Optimizer):
            raise ArgumentError("optimizer", f"optimizer must be a torch optimiser, got {type(optimizer).__name__}")
        held = {id(p) for group in optimizer.param_groups for p in group["params"]}
        if not any(id(p) in held for layer in regularizer.layers for p in layer.weight.behind):
            raise ArgumentError("optimizer", "optimizer holds none of the regularised weights: is it another model's?")
        self.regularizer, self.clip_norm = regularizer, clip_norm
        self._handle = optimizer.register_step_pre_hook(self._before_step)

    def remove(self) -> None:
        """Undo `attach`: from now on `optimizer.step()` only updates the weights."""
        self._handle.remove()

    def _before_step(self, optimizer: Optimizer, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        # torch hands the optimiser itself on as the first argument.
        if any(callable(argument) for argument in (*arguments[1:], *named.values())):
            raise RuntimeError(
                "cmr.attach: step(closure) computes its gradients inside the step, after this hook; "
                "call cmr.add_gradients() at the end of the closure instead"
            )
        if getattr(optimizer, "grad_scale", None) is not None:
            raise RuntimeError(
                "cmr.attach: a GradScaler leaves the gradients of a fused optimiser scaled until its kernel, and the "
                "cap compares their norm; call scaler.unscale_(optimizer) before scaler.step(optimizer), or make the "
                "optimiser with fused=False"
            )
        self.regularizer.add_gradients()
        if self.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(
                [p for group in optimizer.param_groups for p in group["params"]], self.clip_norm
            )
