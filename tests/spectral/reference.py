"""The slow twin: the paper's definitions read out loud in float64, differentiated by autograd through `svdvals`.

T_k is cos(k arccos x). arccos has an infinite slope at ±1, where the edges of the spectrum always sit, so within EDGE
of ±1 the same polynomial is summed from numpy's exact integer coefficients instead; at EDGE the two agree to 1e-12
(`test_twin_agrees_with_itself_at_the_seam`). Neither uses a recurrence, which is what the package does.
"""

import numpy as np
import torch
from torch import Tensor

EDGE = 1e-2


def chebyshev(x: Tensor, k: int) -> Tensor:
    """T_k(x)."""
    inside = x.abs() < 1 - EDGE
    trigonometric = torch.cos(k * torch.arccos(torch.where(inside, x, 0)))
    return torch.where(inside, trigonometric, polynomial(x, k))


def polynomial(x: Tensor, k: int) -> Tensor:
    """T_k(x) from its power-basis coefficients; good for k <= 10."""
    coefficients = np.polynomial.chebyshev.cheb2poly([0] * k + [1])
    return sum((float(a) * x**p for p, a in enumerate(coefficients) if a), torch.zeros_like(x))


def rho_cond(sigma: Tensor, eps: float) -> Tensor:
    return torch.log(sigma[..., 0]) - torch.log(sigma[..., -1] ** 2 + eps) / 2


def moments(sigma: Tensor, shape: tuple[int, int], K: int, eps: float, gram: str) -> Tensor:
    """s_0 ... s_K from singular values: the eigenvalues of WᵀW (or of the smaller Gram matrix) written out in full."""
    lam = sigma**2
    if gram == "columns" and shape[1] > shape[0]:
        lam = torch.cat([lam, lam.new_zeros(*lam.shape[:-1], shape[1] - shape[0])], dim=-1)
    lam_max, lam_min = lam[..., :1], lam[..., -1:]
    c = (lam_max + lam_min) / 2
    d = torch.clamp((lam_max - lam_min) / 2, min=eps)
    x = (lam - c) / d
    return torch.stack([chebyshev(x, k).mean(-1) for k in range(K + 1)], dim=-1)


def rho_moment(sigma: Tensor, shape: tuple[int, int], K: int, beta: float, eps: float, gram: str) -> Tensor:
    s = moments(sigma, shape, K, eps, gram)
    return sum(np.exp(beta * (k - 3)) * s[..., k] ** 2 for k in range(3, K + 1))


def penalty_of_spectrum(sigma: Tensor, shape: tuple[int, int], spec) -> Tensor:
    """α₁ρ_cond + α₂ρ_moment from singular values."""
    return spec.alpha1 * rho_cond(sigma, spec.eps) + spec.alpha2 * rho_moment(
        sigma, shape, spec.K, spec.beta, spec.eps, spec.gram
    )


def penalty(W: Tensor, spec) -> Tensor:
    """α₁ρ_cond + α₂ρ_moment of W (..., m, n); differentiate it with autograd."""
    return penalty_of_spectrum(torch.linalg.svdvals(W.double()), (W.shape[-2], W.shape[-1]), spec)


def gradient(W: Tensor, spec) -> Tensor:
    """∇_W of `penalty`, by autograd."""
    A = W.detach().double().requires_grad_()
    return torch.autograd.grad(penalty(A, spec).sum(), A)[0]


def slopes(sigma: Tensor, shape: tuple[int, int], spec) -> Tensor:
    """∂penalty/∂σ_i, by autograd: with known U and V it gives ∇_W with no decomposition at all."""
    sigma = sigma.detach().double().requires_grad_()
    return torch.autograd.grad(penalty_of_spectrum(sigma, shape, spec).sum(), sigma)[0]
