"""A penalty on the layers' matrices that acts through its gradient, mixed in under the cap."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple, TypedDict

import torch
from torch import Tensor, nn

from cmr_runner.regularizers.base import Regularizer, StepFigures
from cmr_runner.regularizers.layers import Layer, LayerRule, Weight, unique_weights
from cmr_runner.regularizers.mixing import CappedMixing, Mixing, global_norm
from cmr_runner.spectral.decomposition import saturated, working
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
        require("regularizer.every", every, isinstance(every, int) and every >= 1, "an integer >= 1")
        require("regularizer.layers", self.rule, bool(self.layers), "a rule that admits at least one weight")
        self.mixer = CappedMixing(lam, rho_spec, mixing, warmup * steps_per_epoch)
        self.every = every
        self.step = 0
        self._groups = same_shape(self.layers)
        self._held: _Spectral | None = None

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
        add_scaled_(spectral.parameters, spectral.gradients, factor)
        self.last = StepFigures(
            norm_task, factor * norm, cap, lambda_t, spectral.penalty, spectral.kappa, spectral.skipped
        )
        self.step += 1

    def _spectral(self) -> _Spectral:
        if self._held is None or self.step % self.every == 0:
            # Spectra are taken in the weights' own precision, whatever autocast surrounds the caller.
            with torch.autocast(device_type=self._device_type, enabled=False):
                fresh = self._evaluate()
            self._held = fresh if self.every > 1 else None
            return fresh
        return self._held

    @property
    def _device_type(self) -> str:
        return next(self.model.parameters()).device.type

    def _evaluate(self) -> _Spectral:
        """Penalty and gradients in the trainable parameters, one batch a group of same-shape layers."""
        weights = {id(layer.weight): layer.weight for layer in self.layers}
        with torch.enable_grad():  # a parametrised weight needs its graph for the pull-back
            effective = {key: weight.effective() for key, weight in weights.items()}
        matrices = {key: weight.matrices(effective[key].detach()) for key, weight in weights.items()}
        gradients = {key: torch.zeros_like(tensor) for key, tensor in effective.items() if len(weights[key].parts) > 1}

        results = []
        for group, members in self._groups.items():
            W = torch.stack([working(matrices[id(layer.weight)][layer.index]) for layer in members])  # (B, m, n)
            result = self.penalty(W, group=group)
            results.append(result)
            for layer, gradient in zip(members, result.gradient, strict=True):
                key = id(layer.weight)
                gradient = saturated(gradient, effective[key].dtype)
                if len(layer.weight.parts) > 1:
                    layer.weight.matrices(gradients[key])[layer.index].copy_(gradient)
                else:
                    gradients[key] = gradient.reshape(effective[key].shape)
        return self._collect(weights, effective, gradients, results)

    def _collect(
        self,
        weights: dict[int, Weight],
        effective: dict[int, Tensor],
        gradients: dict[int, Tensor],
        results: list[BatchPenalty],
    ) -> _Spectral:
        parameters: list[nn.Parameter] = []
        pulled: list[Tensor] = []
        for key, weight in weights.items():
            parameters += weight.parameters
            pulled += weight.pull_back(effective[key], gradients[key])
        by_layer = {
            layer.name: kappa
            for members, result in zip(self._groups.values(), results, strict=True)
            if result.kappa is not None
            for layer, kappa in zip(members, result.kappa, strict=True)
        }
        return _Spectral(
            parameters,
            pulled,
            penalty=torch.stack([result.value.sum() for result in results]).sum() if results else torch.zeros(()),
            kappa=torch.stack([by_layer[layer.name] for layer in self.layers]) if by_layer else torch.empty(0),
            skipped=sum(result.skipped for result in results),
        )

    def state_dict(self) -> dict[str, Any]:
        held = self._held
        return {"step": self.step, "held": None if held is None else held.state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.step = state["step"]
        self._held = None
        if state["held"] is not None:
            parameters = [p for weight in unique_weights(self.layers) for p in weight.parameters]
            self._held = _Spectral.from_state(parameters, state["held"])


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


def add_scaled_(parameters: list[nn.Parameter], gradients: list[Tensor], factor: Tensor) -> None:
    """p.grad += factor · g for each pair, making a `.grad` where there is none."""
    scaled = torch._foreach_mul(gradients, factor)
    present = [(p.grad, g) for p, g in zip(parameters, scaled, strict=True) if p.grad is not None]
    if present:
        torch._foreach_add_([grad for grad, _ in present], [g for _, g in present])
    for p, g in zip(parameters, scaled, strict=True):
        if p.grad is None:
            p.grad = g
