"""Exact spectra for reporting: always float64, whatever the weights are in.

An SVD in float32 resolves σ_min down to about finfo(float32).eps · σ_max, so κ up to roughly 1e6; a float32 Gram
matrix has lost it all by κ ≈ 3e3 = 1/√eps, the paper's own stress level, which is why nothing reported comes from one.
docs/numerics.md derives both.
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
    """κ = σ_max / σ_min from all min(m, n) singular values (..., r) -> (...); inf where σ_min = 0 (zero matrix too).

    Rounding rarely leaves an exact 0: past 1/(eps·max(m, n)) a finite κ only says that W is numerically singular.
    """
    sigma_max, sigma_min = sigma[..., 0], sigma[..., -1]
    kappa = sigma_max / torch.where(sigma_min > 0, sigma_min, 1)
    return torch.where(sigma_min > 0, kappa, torch.inf)


def stable_rank(sigma: Tensor) -> Tensor:
    """‖W‖_F² / ‖W‖₂² = Σσ_i²/σ_max² from singular values (..., r) -> (...), in [1, r]; 0 for the zero matrix."""
    sigma_max = sigma[..., :1]
    return (sigma / torch.where(sigma_max > 0, sigma_max, 1)).square().sum(-1)
