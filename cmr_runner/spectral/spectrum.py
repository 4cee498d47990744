"""Exact spectra for reporting: always float64, whatever the weights are in.

float32 weights resolve σ_min down to about finfo(float32).eps · σ_max, so κ up to roughly 1e6 (half its digits are
gone at 3e3 if it is taken from a float32 Gram matrix instead, which is why nothing reported here does that).
"""

import torch
from torch import Tensor

from cmr_runner.spectral.decomposition import check_finite, converging


def singular_values(W: Tensor) -> Tensor:
    """σ of W (..., m, n) -> (..., min(m, n)), float64, descending. Raises NonFiniteError."""
    A = W.detach().double()
    check_finite(A)
    return converging(torch.linalg.svdvals, A)


def condition_number(sigma: Tensor) -> Tensor:
    """κ = σ_max / σ_min over the min(m, n) singular values; inf where σ_min = 0 (the zero matrix included)."""
    sigma_max, sigma_min = sigma[..., 0], sigma[..., -1]
    kappa = sigma_max / torch.where(sigma_min > 0, sigma_min, 1)
    return torch.where(sigma_min > 0, kappa, torch.inf)


def stable_rank(sigma: Tensor) -> Tensor:
    """‖W‖_F² / ‖W‖₂² in [1, r]; 0 for the zero matrix."""
    sigma_max = sigma[..., :1]
    return (sigma / torch.where(sigma_max > 0, sigma_max, 1)).square().sum(-1)
