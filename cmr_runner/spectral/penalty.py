"""The penalty of one layer, α₁ρ_cond + α₂ρ_moment: value, gradient and statistics from one decomposition."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, get_args

import torch
from torch import Tensor

from cmr_runner.spectral.condition import rho_cond, rho_cond_slopes
from cmr_runner.spectral.decomposition import saturated, spectral_gradient, svd
from cmr_runner.spectral.moments import (
    GramReading,
    moment_weights,
    moments_and_slopes,
    rho_moment,
    rho_moment_slopes,
)


@dataclass(frozen=True)
class PenaltySpec:
    """What the penalty of a layer is: the paper's K, α₁, α₂, β, ε and the reading of the Gram matrix.

    `weights`, (K−2,), overrides w_k = exp(β(k−3)); it is how learned moment weights come in.
    """

    K: int = 5
    alpha1: float = 1.0
    alpha2: float = 0.1
    beta: float = 0.15
    eps: float = 1e-6
    gram: GramReading = "short_side"
    weights: Tensor | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        require("K", self.K, isinstance(self.K, int) and self.K >= 3, "an integer >= 3")
        require("alpha1", self.alpha1, 0 <= self.alpha1 < math.inf, "finite and >= 0")
        require("alpha2", self.alpha2, 0 <= self.alpha2 < math.inf, "finite and >= 0")
        require("beta", self.beta, math.isfinite(self.beta), "finite")
        require("eps", self.eps, 0 < self.eps < math.inf, "finite and > 0")
        require("gram", self.gram, self.gram in get_args(GramReading), " or ".join(get_args(GramReading)))
        if self.weights is not None:
            shape = tuple(self.weights.shape)
            require("weights", f"shape {shape}", shape == (self.K - 2,), f"one number for each k = 3..{self.K}")

    @cached_property
    def w(self) -> Tensor:
        """w_k for k = 3..K, (K−2,)."""
        return moment_weights(self.K, self.beta) if self.weights is None else self.weights


def require(key: str, value: object, holds: bool, allowed: str) -> None:
    """One line for a value out of range; NaN fails every comparison, so it is refused too."""
    if not holds:
        raise ValueError(f"{key} must be {allowed}, got {value}")


@dataclass
class LayerPenalty:
    """What an engine says of a batch of same-shape matrices. Batch dimensions `...` lead."""

    value: Tensor  # (...) α₁ρ_cond + α₂ρ_moment
    gradient: Tensor  # (..., m, n) of value, in W
    rho_cond: Tensor  # (...)
    rho_moment: Tensor  # (...)
    moments: Tensor  # (..., K+1) s_0 ... s_K
    sigma_max: Tensor  # (...)
    sigma_min: Tensor  # (...)
    skipped: int = 0  # matrices whose decomposition failed: their value and gradient are zero
    fallbacks: int = 0  # matrices that failed the engine's own check: computed by `exact`, or with a longer Lanczos run

    def to(self, dtype: torch.dtype) -> LayerPenalty:
        """The same with every tensor in dtype."""
        tensors = {f.name: v for f in fields(self) if isinstance(v := getattr(self, f.name), Tensor)}
        cast: dict[str, Any] = {name: saturated(v, dtype) for name, v in tensors.items()}
        return replace(self, **cast)


def penalty_from_svd(U: Tensor, sigma: Tensor, Vh: Tensor, spec: PenaltySpec) -> LayerPenalty:
    """∇_W = U diag(α₁ ∂ρ_cond/∂σ + α₂ ∂ρ_moment/∂σ) Vᵀ, and the statistics that came with it."""
    shape = (U.shape[-2], Vh.shape[-1])
    s, slopes = moments_and_slopes(sigma, shape, spec.K, spec.eps, spec.gram)
    cond, moment = rho_cond(sigma, spec.eps), rho_moment(s, spec.w)
    slope = spec.alpha1 * rho_cond_slopes(sigma, spec.eps) + spec.alpha2 * rho_moment_slopes(s, slopes, spec.w)
    return LayerPenalty(
        value=spec.alpha1 * cond + spec.alpha2 * moment,
        gradient=spectral_gradient(U, slope, Vh),
        rho_cond=cond,
        rho_moment=moment,
        moments=s,
        sigma_max=sigma[..., 0],
        sigma_min=sigma[..., -1],
    )


def exact_penalty(W: Tensor, spec: PenaltySpec) -> LayerPenalty:
    """The penalty of W (..., m, n) from its SVD, in W's dtype (half precision computed in float32)."""
    return penalty_from_svd(*svd(W), spec).to(W.dtype)


class _WithClosedFormGradient(torch.autograd.Function):
    """value(W) whose backward is the gradient that came with it: autograd never sees a decomposition."""

    @staticmethod
    def forward(ctx: Any, W: Tensor, evaluate: Callable[[Tensor], LayerPenalty]) -> Tensor:
        penalty = evaluate(W)
        ctx.save_for_backward(penalty.gradient)
        return penalty.value

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_value: Tensor) -> tuple[Tensor, None]:
        (gradient,) = ctx.saved_tensors
        return grad_value[..., None, None] * gradient, None


def layer_penalty(
    W: Tensor, spec: PenaltySpec, evaluate: Callable[[Tensor, PenaltySpec], LayerPenalty] = exact_penalty
) -> Tensor:
    """α₁ρ_cond(W) + α₂ρ_moment(W), (...), differentiable in W once, through any parametrisation of W.

    `evaluate` is an engine: anything that gives a LayerPenalty for a batch of matrices.
    """
    return _WithClosedFormGradient.apply(W, lambda A: evaluate(A, spec))
