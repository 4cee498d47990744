"""Matrices whose singular values and vectors are known before any decomposition."""

import torch
from hypothesis import strategies as st
from torch import Tensor

SHAPES = {
    "square": (8, 8),
    "tall": (12, 7),
    "wide": (7, 12),
    "row": (1, 9),
    "column": (9, 1),
    "scalar": (1, 1),
}


def orthonormal(rows: int, cols: int, seed: int) -> Tensor:
    """(rows, cols <= rows), float64, with orthonormal columns."""
    generator = torch.Generator().manual_seed(seed)
    return torch.linalg.qr(torch.randn(rows, cols, dtype=torch.float64, generator=generator))[0]


def factors(m: int, n: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """U (m, r) and V (n, r) with orthonormal columns, r = min(m, n)."""
    r = min(m, n)
    return orthonormal(m, r, 2 * seed), orthonormal(n, r, 2 * seed + 1)


def with_spectrum(sigma: Tensor, m: int, n: int, seed: int = 0) -> Tensor:
    """U diag(sigma) Vᵀ, (m, n), float64."""
    U, V = factors(m, n, seed)
    return (U * sigma.double()) @ V.T


def geometric(kappa: float, r: int, sigma_max: float = 1.0) -> Tensor:
    """r singular values in geometric progression from sigma_max down to sigma_max/κ, so every gap is relative."""
    return sigma_max * kappa ** -torch.linspace(0, 1, r, dtype=torch.float64)


def least_relative_gap(kappa: float, r: int) -> float:
    """(σ_i − σ_{i+1})/σ_{i+1} of `geometric`, the same for all i."""
    return kappa ** (1 / (r - 1)) - 1 if r > 1 else float("inf")


@st.composite
def spectra(draw: st.DrawFn, min_size: int = 1, max_size: int = 10) -> Tensor:
    """Descending singular values: any mixture of spread, clustered, repeated and zero values, over ten decades."""
    shape = draw(st.lists(st.sampled_from([0.0, 1e-8, 1e-3, 0.5, 0.99, 1 - 1e-7, 1.0]), min_size=0, max_size=max_size))
    size = max(min_size - len(shape), 0)
    free = draw(st.lists(st.floats(0, 1), min_size=size, max_size=max(size, max_size - len(shape))))
    values = sorted((*shape, *free) or (1.0,), reverse=True)
    scale = 10.0 ** draw(st.floats(-5, 5))
    return scale * torch.tensor(values, dtype=torch.float64)


@st.composite
def matrices(draw: st.DrawFn) -> Tensor:
    """(m, n), float64, m and n in 1..8, of a spectrum from `spectra`."""
    m, n = draw(st.integers(1, 8)), draw(st.integers(1, 8))
    r = min(m, n)
    sigma = draw(spectra(min_size=r, max_size=r))[:r]
    return with_spectrum(sigma, m, n, seed=draw(st.integers(0, 1000)))
