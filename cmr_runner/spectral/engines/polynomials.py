"""Moments and their gradient without an eigendecomposition: matrix products in place of eigenvalues.

With t_j = tr T_j(Ĝ) everything the penalty needs of the interior is

    s_k = t_k / n,    ∇ρ_moment = (2/(n d)) [ W p(Ĝ) + rank-2 terms at the edges ],    p = Σ_k 2 w_k s_k T_k'.

Traces of products of polynomials are inner products, <T_i, T_j> = ½ (t_{i+j} + t_{|i−j|}), so polynomials up to degree
q give traces up to 2q. Counting the Gram matrix, K takes ⌈K/2⌉ + 2 products of the matrix's size; K = 3 takes 3, K = 5
takes 4.
"""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cmr_runner.spectral.engines.host import Array, array, tensor


class Interior(NamedTuple):
    """Powers of Ĝ computed so far: enough for the traces, kept for the gradient."""

    traces: Array  # (B, K+1) t_0 ... t_K
    T: list[Tensor]  # [A, T_2(A), ...] with A = Ĝ, each (B, r, r)
    Z: Tensor | None  # W T_2(A), only for K = 5


def normalised_gram_(G: Tensor, c: Tensor, d: Tensor) -> Tensor:
    """Ĝ = (G − cI)/d, written over G (B, r, r)."""
    G.div_(d[:, None, None])
    G.diagonal(dim1=-2, dim2=-1).sub_((c / d).unsqueeze(-1))
    return G


def interior(W: Tensor, A: Tensor, c: Array, d: Array, K: int) -> Interior:
    """Traces of T_0 ... T_K at A = Ĝ for a tall W (B, M, r); K = 5 takes that of T_5 from W T_2, see `odd_trace`."""
    T = [A]
    degree = 2 if K == 5 else (K + 1) // 2
    for j in range(2, degree + 1):
        T.append(_doubled(T, j))
    traces = [np.full(len(A), float(A.shape[-1])), *(_trace(P) for P in T)]
    extend_(traces, lambda i, j: inner(T[i - 1], T[j - 1]) if i < j else square_norm(T[i - 1]), min(K, 2 * degree))
    if K != 5:
        return Interior(np.stack(traces, -1), T, None)
    Z = torch.bmm(W, T[1])
    traces.append(odd_trace(square_norm(Z), traces, c, d))
    return Interior(np.stack(traces, -1), T, Z)


def extend_(traces: list[Array], product: Callable[[int, int], Array], last: int) -> None:
    """Append traces up to t_last by t_k = 2 <T_i, T_{k−i}> − t_{k−2i}, i = ⌊k/2⌋, given product(i, j) = <T_i, T_j>."""
    for k in range(len(traces), last + 1):
        i = k // 2
        traces.append(2 * product(i, k - i) - traces[k - 2 * i])


def odd_trace(square: Array, traces: list[Array], c: Array, d: Array) -> Array:
    """t_{2q+1} from ‖W T_q(A)‖² and t_0 ... t_{2q}, without T_{q+1}:

    ‖W T_q‖² = d tr(A T_q²) + c tr T_q², where A T_q² = ¼(T_{2q+1} + T_{2q−1}) + ½A and T_q² = ½(T_{2q} + I).
    The subtraction costs c/d in accuracy: digits that Ĝ lost already.
    """
    return 4 * ((square - c * (traces[-1] + traces[0]) / 2) / d - traces[1] / 2) - traces[-2]


def gradient_product(W: Tensor, powers: Interior, h: Array, out: Tensor | None = None) -> Tensor:
    """W p(Ĝ), p = Σ_k h_k T_k', for h (B, K+1) -> (B, M, r), in `out` if given.

    K = 5, with Z = W T_2:  T_3' = 6T_2 + 3,  T_4' = 16 T_1T_2,  T_5' = 20 T_2² + 10 T_2 − 5, so the sum is
    (3h_3 − 5h_5) W + Z [(6h_3 + 10h_5) I + 16h_4 T_1 + 20h_5 T_2]: one product. Otherwise p is split as
    p_0 + T_q p_1 with both parts of degree <= q.
    """
    if powers.Z is not None:
        h3, h4, h5 = h[:, 3:].T
        M = _combination(powers.T, np.stack([6 * h3 + 10 * h5, 16 * h4, 20 * h5], -1))
        return torch.bmm(powers.Z, M, out=out).addcmul_(W, tensor(3 * h3 - 5 * h5, W)[:, None, None])
    q = len(powers.T)
    low, high = _split(h @ derivative_coefficients(h.shape[-1] - 1), q)
    P = _combination(powers.T, low)
    if high.shape[-1]:
        P.baddbmm_(powers.T[-1], _combination(powers.T, high))
    return torch.bmm(W, P, out=out)


@cache
def derivative_coefficients(K: int) -> Array:
    """D (K+1, K+1), T_k' = Σ_j D[k, j] T_j:  k U_{k−1}, U_i = 2(T_i + T_{i−2} + ...), the T_0 in it counted once."""
    D = np.zeros((K + 1, K + 1))
    for k in range(1, K + 1):
        D[k, np.arange(k - 1, -1, -2)] = 2.0 * k
        if k % 2:
            D[k, 0] = k
    return D


@cache
def scaled_derivative_coefficients(K: int) -> Array:
    """E (K+1, K+1), x T_k' = Σ_j E[k, j] T_j, from x T_j = ½(T_{j+1} + T_{|j−1|})."""
    D, E = derivative_coefficients(K), np.zeros((K + 1, K + 1))
    E[:, 1:] += 0.5 * D[:, :-1]
    E[:, :-1] += 0.5 * D[:, 1:]
    E[:, 1] += 0.5 * D[:, 0]
    return E


def affine_coefficients(a: Array, b: Array, K: int) -> Array:
    """M (B, K+1, K+1), T_k(a x + b) = Σ_j M[k, j] T_j(x), from T_{k+1} = 2(a x + b) T_k − T_{k−1}."""
    M = np.zeros((len(a), K + 1, K + 1))
    M[:, 0, 0], M[:, 1, 0], M[:, 1, 1] = 1, b, a
    a, b = a[:, None], b[:, None]
    for k in range(1, K):
        row = M[:, k]
        M[:, k + 1] = 2 * b * row - M[:, k - 1]
        M[:, k + 1, 1:] += a * row[:, :-1]  # x T_j = ½(T_{j+1} + T_{|j−1|})
        M[:, k + 1, :-1] += a * row[:, 1:]
        M[:, k + 1, 1] += a[:, 0] * row[:, 0]
    return M


def inner(A: Tensor, B: Tensor) -> Array:
    """<A, B> of batched matrices, (B,): rows are summed in their own precision, the row sums in double."""
    return array((A * B).sum(-1)).sum(-1)


def square_norm(A: Tensor) -> Array:
    """<A, A> likewise, in one pass over A."""
    return np.square(array(torch.linalg.vector_norm(A, dim=-1))).sum(-1)


def _trace(P: Tensor) -> Array:
    return array(P.diagonal(dim1=-2, dim2=-1)).sum(-1)


def _doubled(T: list[Tensor], j: int) -> Tensor:
    """T_j = 2 T_{⌊j/2⌋} T_{⌈j/2⌉} − T_{j mod 2}."""
    i = j // 2
    P = torch.bmm(T[i - 1], T[j - i - 1]).mul_(2)
    if j % 2:
        return P.sub_(T[0])
    P.diagonal(dim1=-2, dim2=-1).sub_(1)
    return P


def _combination(T: list[Tensor], coefficients: Array) -> Tensor:
    """coefficients[0] I + Σ_j coefficients[j] T_j, (B, r, r); coefficients (B, up to q+1)."""
    scalars = tensor(coefficients, T[0])[..., None, None].unbind(1)
    P = T[0] * scalars[1] if len(scalars) > 1 else torch.zeros_like(T[0])
    for T_j, scalar in zip(T[1:], scalars[2:], strict=False):
        P.addcmul_(T_j, scalar)
    P.diagonal(dim1=-2, dim2=-1).add_(scalars[0].squeeze(-1))
    return P


def _split(p: Array, q: int) -> tuple[Array, Array]:
    """p = low + T_q · high in the Chebyshev basis, p (B, K+1) of degree K−1 < 2q: T_{q+i} = 2 T_q T_i − T_{q−i}."""
    degree = p.shape[-1] - 2
    low, high = p[:, : q + 1].copy(), np.zeros((len(p), degree - q + 1 if degree > q else 0))
    for i in range(degree - q, 0, -1):
        high[:, i] = 2 * p[:, q + i]
        low[:, q - i] -= p[:, q + i]
    return low, high
