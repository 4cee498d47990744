"""The penalty of one layer, α₁ρ_cond + α₂ρ_moment: value, gradient and statistics from one decomposition."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, get_args

import torch
from torch import Tensor

from cmr_runner.checks import integer, number, one_of, require
from cmr_runner.spectral.condition import rho_cond, rho_cond_slopes
from cmr_runner.spectral.decomposition import saturated, spectral_gradient, svd
from cmr_runner.spectral.moments import (
    GramReading,
    moment_weights,
    moments_and_slopes,
    rho_moment,
    rho_moment_slopes,
)
from cmr_runner.spectral.spectrum import condition_number


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
        integer("K", self.K, least=3)
        number("alpha1", self.alpha1, least=0)
        number("alpha2", self.alpha2, least=0)
        number("beta", self.beta)
        number("eps", self.eps, above=0, most=1e30)  # within float32, squared weights and all
        one_of("gram", self.gram, get_args(GramReading))
        if self.weights is not None:
            shape = tuple(self.weights.shape)
            require("weights", shape, shape == (self.K - 2,), f"of shape ({self.K - 2},), one for each k = 3..{self.K}")

    @cached_property
    def w(self) -> Tensor:
        """w_k for k = 3..K, (K−2,)."""
        return moment_weights(self.K, self.beta) if self.weights is None else self.weights


@dataclass(kw_only=True)
class Penalty:
    """A penalty of same-shape matrices W (..., m, n), and its gradient in W: dense + left @ right.

    Whoever knows a part of the gradient as k outer products leaves it so: k(m + n) numbers instead of mn.
    """

    value: Tensor  # (...)
    dense: Tensor | None = None  # (..., m, n)
    left: Tensor | None = None  # (..., m, k)
    right: Tensor | None = None  # (..., k, n)
    norm: Tensor | None = None  # (...) of the gradient, where whoever made it knows it
    sigma_max: Tensor | None = None  # (...) where the penalty looks at it
    sigma_min: Tensor | None = None
    kept: bool = False  # `dense` is used again by whoever made it: not to be overwritten
    skipped: int = 0  # matrices whose decomposition failed: their value and gradient are zero
    fallbacks: int = 0  # matrices that failed the engine's own check: computed by `exact`, or with a longer Lanczos run

    @property
    def gradient(self) -> Tensor:
        """The whole of it, (..., m, n)."""
        if self.left is None or self.right is None:
            assert self.dense is not None
            return self.dense
        with torch.autocast(self.left.device.type, enabled=False):  # an enclosing one would take it in half precision
            product = self.left @ self.right
        return product if self.dense is None else product.add_(self.dense)

    @property
    def kappa(self) -> Tensor | None:
        """κ of each matrix (...), where the penalty knows both edges."""
        if self.sigma_max is None or self.sigma_min is None:
            return None
        return condition_number(torch.stack([self.sigma_max, self.sigma_min], -1))


@dataclass(kw_only=True)
class LayerPenalty(Penalty):
    """What an engine says of α₁ρ_cond + α₂ρ_moment."""

    rho_cond: Tensor  # (...)
    rho_moment: Tensor  # (...)
    moments: Tensor  # (..., K+1) s_0 ... s_K

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
        dense=spectral_gradient(U, slope, Vh),
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
