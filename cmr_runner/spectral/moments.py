"""The interior of the spectrum: Chebyshev moments of the normalised Gram matrix, and their gradients.

Ĝ = (G − cI)/d,  c = (λ_max + λ_min)/2,  d = max((λ_max − λ_min)/2, ε),  s_k = (1/n) tr T_k(Ĝ).

Everything is a function of the singular values, λ_i = σ_i². Two readings of G, chosen by `gram`:

- `short_side` (default): G is the smaller of WᵀW and WWᵀ, n = min(m, n).
- `columns`: as the paper writes it, G = WᵀW and n = cols(W). A wide W then has n − m eigenvalues that are exactly zero:
  λ_min = 0 does not move with W, and the zeros enter every trace.
"""

from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from cmr_runner.spectral.decomposition import saturated, spectral_gradient, svd

GramReading = Literal["short_side", "columns"]


class GramSpectrum(NamedTuple):
    """The normalised Gram spectrum: r moving eigenvalues and `zeros` fixed ones."""

    x: Tensor  # (..., r) normalised eigenvalues (λ_i − c)/d, descending
    x0: Tensor  # (...)   where the fixed zero eigenvalues sit, −c/d
    d: Tensor  # (...)
    at_floor: Tensor  # (...) bool, d = ε: then d does not move with W
    zeros: int  # n − r
    n: int


def gram_spectrum(sigma: Tensor, shape: tuple[int, int], eps: float, gram: GramReading) -> GramSpectrum:
    """Normalise λ_i = σ_i² of a matrix of the given (m, n). Domain: σ_max² within the dtype's range, ε > 0."""
    if gram not in get_args(GramReading):
        raise ValueError(f"gram must be {' or '.join(get_args(GramReading))}, got {gram}")
    r = sigma.shape[-1]
    n = shape[1] if gram == "columns" else r
    lam = sigma.square()
    lam_max = lam[..., 0]
    lam_min = lam[..., -1] if n == r else torch.zeros_like(lam_max)
    c = (lam_max + lam_min) / 2
    half_width = (lam_max - lam_min) / 2
    d = half_width.clamp_min(eps)
    x = ((lam - c.unsqueeze(-1)) / d.unsqueeze(-1)).clamp(-1, 1)  # rounding can step past the edge by an ulp
    return GramSpectrum(x, -c / d, d, half_width <= eps, n - r, n)


def chebyshev(x: Tensor, K: int) -> tuple[Tensor, Tensor]:
    """T_k(x) and T_k'(x) = k U_{k−1}(x) for k = 0..K, each (K+1, *x.shape), by the three-term recurrences.

    On [-1, 1], |T_k| <= 1 and |T_k'| <= k². No arccos: its slope is infinite at ±1, where the edges always sit.
    """
    T = [torch.ones_like(x), x]
    U = [torch.ones_like(x), 2 * x]
    for _ in range(2, K + 1):
        T.append(2 * x * T[-1] - T[-2])
        U.append(2 * x * U[-1] - U[-2])
    slopes = [torch.zeros_like(x)] + [k * U[k - 1] for k in range(1, K + 1)]
    return torch.stack(T[: K + 1]), torch.stack(slopes)


def moment_weights(K: int, beta: float) -> Tensor:
    """w_k = exp(β(k − 3)) for k = 3..K, float64."""
    return torch.exp(beta * torch.arange(K - 2, dtype=torch.float64))


def moments(sigma: Tensor, shape: tuple[int, int], K: int, eps: float, gram: GramReading = "short_side") -> Tensor:
    """s_k = (1/n) Σ_j T_k(x_j), k = 0..K, from singular values (..., r) of matrices of the given (m, n) -> (..., K+1).

    |s_k| <= 1, s_0 = 1. Where all σ are equal (orthogonal W, r = 1, the zero matrix) every x_j is 0: s_k = 0 for odd k
    and (−1)^(k/2) for even k, so ρ_moment is not 0 there.
    """
    spectrum = gram_spectrum(sigma, shape, eps, gram)
    T, _ = chebyshev(spectrum.x, K)
    return _moments(spectrum, T)


def _moments(spectrum: GramSpectrum, T: Tensor) -> Tensor:
    traces = T.sum(-1)  # (K+1, ...)
    if spectrum.zeros:
        traces = traces + spectrum.zeros * chebyshev(spectrum.x0, len(T) - 1)[0]
    return traces.movedim(0, -1) / spectrum.n


def moments_and_slopes(
    sigma: Tensor, shape: tuple[int, int], K: int, eps: float, gram: GramReading = "short_side"
) -> tuple[Tensor, Tensor]:
    """s (..., K+1) and ∂s_k/∂σ_i (..., K+1, r), through c and d as well.

    ∂s_k/∂λ_i = (1/(n d)) [T_k'(x_i) − ½ A_k (1_{i=max} + 1_{i=min}) − ½ B_k (1_{i=max} − 1_{i=min})],
    A_k = Σ_j T_k'(x_j), B_k = Σ_j x_j T_k'(x_j), the sums over all n eigenvalues; B_k only where d > ε;
    then ∂λ_i/∂σ_i = 2σ_i. With fixed zeros i=min is one of them, and does not move.
    """
    spectrum = gram_spectrum(sigma, shape, eps, gram)
    x = spectrum.x
    T, dT = chebyshev(x, K)  # (K+1, ..., r)
    A, B = dT.sum(-1), (x * dT).sum(-1)  # (K+1, ...)
    if spectrum.zeros:
        dT0 = chebyshev(spectrum.x0, K)[1]
        A, B = A + spectrum.zeros * dT0, B + spectrum.zeros * spectrum.x0 * dT0
    B = torch.where(spectrum.at_floor, 0, B)

    slopes = dT  # ours to overwrite
    slopes[..., 0] -= 0.5 * (A + B)
    if not spectrum.zeros:
        slopes[..., -1] -= 0.5 * (A - B)
    slopes = slopes * (2 * sigma / (spectrum.n * spectrum.d.unsqueeze(-1)))
    return _moments(spectrum, T), slopes.movedim(0, -2)


def rho_moment(s: Tensor, w: Tensor) -> Tensor:
    """ρ_moment = Σ_{k=3..K} w_k s_k² from s (..., K+1) and w (K−2,)."""
    return (w.to(s) * s[..., 3:].square()).sum(-1)


def moment_gradient(W: Tensor, k: int, eps: float, gram: GramReading = "short_side") -> Tensor:
    """∇_W s_k = U diag(∂s_k/∂σ_i) Vᵀ, (..., m, n), in W's dtype.

    Departure: through c and d as well, which the paper takes for lower order (they are not: docs/numerics.md).
    """
    U, sigma, Vh = svd(W)
    _, slopes = moments_and_slopes(sigma, (W.shape[-2], W.shape[-1]), k, eps, gram)
    return saturated(spectral_gradient(U, slopes[..., k, :], Vh), W.dtype)


def rho_moment_gradient(W: Tensor, K: int, beta: float, eps: float, gram: GramReading = "short_side") -> Tensor:
    """∇_W ρ_moment = Σ_{k=3..K} 2 w_k s_k ∇_W s_k, (..., m, n), in W's dtype.

    ‖∇ρ_moment‖_F <= 4 (1 + 1/√n) (Σ_k w_k k²) ‖W‖₂ / d: see docs/numerics.md, which corrects the paper's bounds.
    """
    U, sigma, Vh = svd(W)
    s, slopes = moments_and_slopes(sigma, (W.shape[-2], W.shape[-1]), K, eps, gram)
    slope = rho_moment_slopes(s, slopes, moment_weights(K, beta))
    return saturated(spectral_gradient(U, slope, Vh), W.dtype)


def rho_moment_slopes(s: Tensor, slopes: Tensor, w: Tensor) -> Tensor:
    """∂ρ_moment/∂σ_i = Σ_{k>=3} 2 w_k s_k ∂s_k/∂σ_i, (..., r)."""
    return ((2 * w.to(s) * s[..., 3:]).unsqueeze(-1) * slopes[..., 3:, :]).sum(-2)
