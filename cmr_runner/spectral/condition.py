"""The edges of the spectrum: ρ_cond(W) = log σ_max − ½ log(σ_min² + ε), and its gradient."""

import torch
from torch import Tensor

from cmr_runner.spectral.decomposition import saturated, spectral_gradient, svd


def rho_cond(sigma: Tensor, eps: float) -> Tensor:
    """ρ_cond = log σ_max − ½ log(σ_min² + ε) from singular values (..., r), descending -> (...). Needs ε > 0.

    Identity: log κ = ρ_cond + ½ log(1 + ε/σ_min²).
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
    up = torch.where(sigma_max > tiny, 1 / sigma_max.clamp_min(tiny), 0)
    down = sigma_min / (sigma_min.square() + eps)
    if sigma.shape[-1] == 1:
        # 1/σ − σ/(σ² + ε) without its cancellation, which costs float32 every digit from σ² ≈ 10 at ε = 1e-6.
        return (up * (eps / (sigma_min.square() + eps))).unsqueeze(-1)
    slopes = torch.zeros_like(sigma)
    slopes[..., 0], slopes[..., -1] = up, -down
    return slopes


def rho_cond_gradient(W: Tensor, eps: float) -> Tensor:
    """∇ρ_cond = (1/σ_max) u₁v₁ᵀ − σ_min/(σ_min² + ε) u_r v_rᵀ, (..., m, n), in W's dtype.

    For r >= 2, ‖∇ρ_cond‖_F² = 1/σ_max² + (σ_min/(σ_min² + ε))². For r = 1 the two terms share one pair and the norm is
    their difference, ε/(σ(σ² + ε)), which the paper's formula leaves out.
    """
    U, sigma, Vh = svd(W)
    return saturated(spectral_gradient(U, rho_cond_slopes(sigma, eps), Vh), W.dtype)
