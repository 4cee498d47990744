"""Where the gradient dies: the network's Jacobian and the layers' gradients, each beside its bound.

For a chain h_1 = W_1 x + b_1, h_i = W_i φ(h_{i−1}) + b_i (h the pre-activations, h_L the logits), with
D_i = diag φ'(h_i) and J_i = W_i D_{i−1} = ∂h_i/∂h_{i−1}:

    κ(J(x)) <= Π_i κ(W_i) · Π_i max|φ'| / min|φ'|            J(x) = W_L D_{L−1} W_{L−1} ... D_1 W_1
    ‖∂L/∂h_ℓ‖ <= Π_{i>ℓ} σ_max(J_i) · ‖∂L/∂h_L‖

The first holds for networks that do not widen on their way (then every W_iᵀ is injective). Departure from the paper:
the slopes are those at x, not the activation's extremes, whose least is 0 for tanh and would make the bound infinite.
Rounding limits κ(J) to about 1e16.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from cmr_runner.data.dataset import Dataset
from cmr_runner.models import MLP
from cmr_runner.spectral import condition_number, singular_values

INPUTS = 16  # of the fixed batch: the first of the training set

Figures = dict[str, float]
LayerFigures = dict[str, dict[str, float]]


def no_diagnostics() -> tuple[Figures, LayerFigures]:
    """What `trainer.diagnostics=false` measures: nothing."""
    return {}, {}


class Diagnostics:
    """Measures a feed-forward chain on one fixed batch, in float64, without touching the model's gradients."""

    def __init__(self, model: nn.Module, data: Dataset, inputs: int = INPUTS) -> None:
        if not isinstance(model, MLP):
            raise ValueError(f"trainer.diagnostics needs a feed-forward chain (model=mlp), not {type(model).__name__}")
        self.model = model
        self.x, self.y = data.train_x[:inputs].double(), data.train_y[:inputs]

    def __call__(self) -> tuple[Figures, LayerFigures]:
        """Over the inputs: geometric means of κ(J(x)) and its bound, and by layer means of ‖∂L/∂h‖ and its bound."""
        weights, names = self._weights()
        h = self._pre_activations(weights)
        slopes = [self._slope(z) for z in h[:-1]]  # D_1 ... D_{L−1}, (B, width) each
        if not all(bool(torch.isfinite(tensor).all()) for tensor in (*weights, *slopes, h[-1])):
            nan = float("nan")
            return _network(nan, nan), {name: _layer(nan, nan) for name in names}
        kappa, bound = jacobian_kappa(weights, slopes)
        norms, bounds = gradient_norms(weights, slopes, h[-1], self.y)
        rows = {name: _layer(float(n), float(b)) for name, n, b in zip(names, norms, bounds, strict=True)}
        return _network(kappa, bound), rows

    def _weights(self) -> tuple[list[Tensor], list[str]]:
        was_training = self.model.training
        self.model.eval()  # reading a spectrally normalised weight in training mode would advance its power iteration
        with torch.no_grad():
            weights = [cast(Tensor, layer.weight).detach().double() for layer in self.model.layers]
        self.model.train(was_training)
        return weights, [f"layers.{i}.weight" for i in range(len(weights))]

    def _pre_activations(self, weights: list[Tensor]) -> list[Tensor]:
        """h_1 ... h_L, (B, n_i) each."""
        z, h = self.x.flatten(1), []
        for W, layer in zip(weights, self.model.layers, strict=True):
            bias = layer.bias.detach().double() if isinstance(layer.bias, Tensor) else 0
            h.append(z @ W.mT + bias)
            z = self.model.activation(h[-1])
        return h

    def _slope(self, h: Tensor) -> Tensor:
        """φ'(h), elementwise."""
        h = h.clone().requires_grad_()
        with torch.enable_grad():
            (slope,) = torch.autograd.grad(self.model.activation(h).sum(), h)
        return slope


def jacobian_kappa(weights: list[Tensor], slopes: list[Tensor]) -> tuple[float, float]:
    """Geometric means over inputs of κ(J(x)), of the min(m, n) singular values that exist, and of its bound."""
    J = weights[-1].expand(len(slopes[0]) if slopes else 1, -1, -1)  # from the output's side: few rows throughout
    for W, slope in zip(reversed(weights[:-1]), reversed(slopes), strict=True):
        J = (J * slope.unsqueeze(-2)) @ W  # (B, classes, n_i)
    log_kappa = condition_number(singular_values(J)).log()
    log_bound = torch.stack([condition_number(singular_values(W)).log() for W in weights]).sum()
    for slope in slopes:
        least, most = slope.abs().amin(-1), slope.abs().amax(-1)
        log_bound = log_bound + torch.where(least > 0, most / least.clamp_min(1e-300), torch.inf).log()  # (B,)
    return float(log_kappa.mean().exp()), float(log_bound.mean().exp())


def gradient_norms(
    weights: list[Tensor], slopes: list[Tensor], logits: Tensor, y: Tensor
) -> tuple[list[float], list[float]]:
    """For ℓ = 1..L the means over inputs of ‖∂L/∂h_ℓ‖, L an input's own loss, and of Π_{i>ℓ} σ_max(J_i) ‖∂L/∂h_L‖."""
    probabilities = torch.softmax(logits, -1)
    g = probabilities - nn.functional.one_hot(y, logits.shape[-1])  # ∂(cross-entropy)/∂h_L, (B, classes)
    bound = torch.linalg.vector_norm(g, dim=-1)  # (B,)
    norms, bounds = [float(bound.mean())], [float(bound.mean())]
    for W, slope in zip(reversed(weights[1:]), reversed(slopes), strict=True):
        g = (g @ W) * slope  # J_iᵀ g
        bound = bound * torch.linalg.matrix_norm(W * slope.unsqueeze(-2), 2)
        norms.append(float(torch.linalg.vector_norm(g, dim=-1).mean()))
        bounds.append(float(bound.mean()))
    return norms[::-1], bounds[::-1]


def _network(kappa: float, bound: float) -> Figures:
    return {"jacobian_kappa": kappa, "jacobian_kappa_bound": bound}


def _layer(norm: float, bound: float) -> dict[str, float]:
    return {"grad_h": norm, "grad_h_bound": bound}
