"""Weights of an exactly given condition number."""

import math

import torch
from torch import Generator, Tensor, nn

from cmr_runner.checks import number
from cmr_runner.inits.weights import factor, matrices_of, zero_biases_
from cmr_runner.spectral import as_matrix

LARGEST_KAPPA = 1e7  # about 1 / eps of float32, in which the weights are kept


@torch.no_grad()
def prescribed_kappa_(model: nn.Module, generator: Generator, *, kappa: float = 1e3, scale: float = 1.0) -> None:
    """W = U diag(σ) Vᵀ with σ log-spaced over exactly `kappa`, their root mean square `scale`; biases zero.

    U and V are random orthogonal. Scale 1 carries a signal's mean square on as an orthogonal start with gain 1 does,
    so what differs is κ alone. Built in float64; rounding to float32 changes κ by a factor of about 1 ± 1e-8 · kappa.
    """
    factor("scale", scale)
    number("kappa", kappa, least=1, most=LARGEST_KAPPA)
    for weight in matrices_of(model):
        m, n = as_matrix(weight).shape
        r = min(m, n)
        sigma = log_spaced(r, kappa, scale)
        U, V = _orthonormal(m, r, generator), _orthonormal(n, r, generator)
        weight.copy_(((U * sigma) @ V.mT).reshape(weight.shape))
    zero_biases_(model)


def log_spaced(r: int, kappa: float, scale: float) -> Tensor:
    """r singular values, descending, σ_1/σ_r = kappa, sqrt(mean σ²) = scale; float64."""
    sigma = torch.logspace(0, -math.log10(kappa), r, dtype=torch.float64)
    return sigma * (scale / sigma.square().mean().sqrt())


def _orthonormal(rows: int, columns: int, generator: Generator) -> Tensor:
    """Haar-distributed orthonormal columns: QR of a Gaussian, signs fixed by R's diagonal."""
    Q, R = torch.linalg.qr(torch.randn(rows, columns, dtype=torch.float64, generator=generator))
    return Q * R.diagonal().sign()
