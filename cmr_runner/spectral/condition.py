"""The edges of the spectrum: ρ_cond(W) = log σ_max − ½ log(σ_min² + ε), and its gradient."""

import torch
from torch import Tensor

from cmr_runner.spectral.decomposition import svd


def rho_cond(sigma: Tensor, eps: float) -> Tensor:
    """ρ_cond from singular values (..., r), descending -> (...).

    Departure: σ_max is floored at finfo.tiny, so that the zero matrix has a finite (very negative) value.
    """
    tiny = torch.finfo(sigma.dtype).tiny
    return sigma[..., 0].clamp_min(tiny).log() - 0.5 * (sigma[..., -1].square() + eps).log()


def rho_cond_slopes(sigma: Tensor, eps: float) -> Tensor:
    """∂ρ_cond/∂σ_i, (..., r): 1/σ_max at the first, −σ_min/(σ_min² + ε) at the last, zero between.

    Where an edge value is repeated, the first (last) pair of the decomposition carries the slope: a valid Clarke
    subgradient. For r = 1 both act on the one value. At σ_max = 0 the slope is 0, the finite choice.
    """
    sigma_max, sigma_min = sigma[..., 0], sigma[..., -1]
    tiny = torch.finfo(sigma.dtype).tiny
    slopes = torch.zeros_like(sigma)
    slopes[..., 0] = torch.where(sigma_max > tiny, 1 / sigma_max.clamp_min(tiny), 0)
    slopes[..., -1] -= sigma_min / (sigma_min.square() + eps)
    return slopes


def rho_cond_gradient(W: Tensor, eps: float) -> Tensor:
    """∇ρ_cond = (1/σ_max) u₁v₁ᵀ − σ_min/(σ_min² + ε) u_r v_rᵀ, (..., m, n)."""
    U, sigma, Vh = svd(W)
    return ((U * rho_cond_slopes(sigma, eps).unsqueeze(-2)) @ Vh).to(W.dtype)
