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

import torch
from torch import Tensor


class Interior(NamedTuple):
    """Powers of Ĝ computed so far: enough for the traces, kept for the gradient."""

    traces: Tensor  # (B, K+1) float64, t_0 ... t_K
    T: list[Tensor]  # [A, T_2(A), ...] with A = Ĝ, each (B, r, r)
    Z: Tensor | None  # W T_2(A), only for K = 5


def normalised_gram_(G: Tensor, c: Tensor, d: Tensor) -> Tensor:
    """Ĝ = (G − cI)/d, written over G (B, r, r)."""
    G.div_(d[:, None, None])
    G.diagonal(dim1=-2, dim2=-1).sub_((c / d).unsqueeze(-1))
    return G


def interior(W: Tensor, A: Tensor, c: Tensor, d: Tensor, K: int) -> Interior:
    """Traces of T_0 ... T_K at A = Ĝ for a tall W (B, M, r); K = 5 takes that of T_5 from W T_2, see `odd_trace`."""
    T = [A]
    degree = 2 if K == 5 else (K + 1) // 2
    for j in range(2, degree + 1):
        T.append(_doubled(T, j))
    r = A.shape[-1]
    traces = [A.new_full(A.shape[:1], r, dtype=torch.float64), *(_trace(P) for P in T)]
    extend_(traces, lambda i, j: inner(T[i - 1], T[j - 1]) if i < j else square_norm(T[i - 1]), min(K, 2 * degree))
    if K != 5:
        return Interior(torch.stack(traces, -1), T, None)
    Z = torch.bmm(W, T[1])
    traces.append(odd_trace(square_norm(Z), traces, c, d))
    return Interior(torch.stack(traces, -1), T, Z)


def extend_(traces: list[Tensor], product: Callable[[int, int], Tensor], last: int) -> None:
    """Append traces up to t_last by t_k = 2 <T_i, T_{k−i}> − t_{k−2i}, i = ⌊k/2⌋, given product(i, j) = <T_i, T_j>."""
    for k in range(len(traces), last + 1):
        i = k // 2
        traces.append(2 * product(i, k - i) - traces[k - 2 * i])


def odd_trace(square: Tensor, traces: list[Tensor], c: Tensor, d: Tensor) -> Tensor:
    """t_{2q+1} from ‖W T_q(A)‖² and t_0 ... t_{2q}, without T_{q+1}:

    ‖W T_q‖² = d tr(A T_q²) + c tr T_q², where A T_q² = ¼(T_{2q+1} + T_{2q−1}) + ½A and T_q² = ½(T_{2q} + I).
    The subtraction costs c/d in accuracy: digits that Ĝ lost already.
    """
    c, d = c.double(), d.double()
    return 4 * ((square - c * (traces[-1] + traces[0]) / 2) / d - traces[1] / 2) - traces[-2]


def gradient_product(W: Tensor, powers: Interior, h: Tensor, out: Tensor | None = None) -> Tensor:
    """W p(Ĝ), p = Σ_k h_k T_k', for h (B, K+1) -> (B, M, r), in `out` if given.

    K = 5, with Z = W T_2:  T_3' = 6T_2 + 3,  T_4' = 16 T_1T_2,  T_5' = 20 T_2² + 10 T_2 − 5, so the sum is
    (3h_3 − 5h_5) W + Z [(6h_3 + 10h_5) I + 16h_4 T_1 + 20h_5 T_2]: one product. Otherwise p is split as
    p_0 + T_q p_1 with both parts of degree <= q.
    """
    if powers.Z is not None:
        h3, h4, h5 = h[:, 3:].unbind(-1)
        M = _combination(powers.T, torch.stack([6 * h3 + 10 * h5, 16 * h4, 20 * h5], -1).to(W))
        return torch.bmm(powers.Z, M, out=out).addcmul_(W, (3 * h3 - 5 * h5).to(W)[:, None, None])
    q = len(powers.T)
    low, high = _split(h @ derivative_coefficients(h.shape[-1] - 1).to(h), q)
    P = _combination(powers.T, low.to(W))
    if high.shape[-1]:
        P.baddbmm_(powers.T[-1], _combination(powers.T, high.to(W)))
    return torch.bmm(W, P, out=out)


@cache
def derivative_coefficients(K: int) -> Tensor:
    """D (K+1, K+1), T_k' = Σ_j D[k, j] T_j:  k U_{k−1}, U_i = 2(T_i + T_{i−2} + ...), the T_0 in it counted once."""
    D = torch.zeros(K + 1, K + 1, dtype=torch.float64)
    for k in range(1, K + 1):
        D[k, torch.arange(k - 1, -1, -2)] = 2.0 * k
        if k % 2:
            D[k, 0] = k
    return D


@cache
def scaled_derivative_coefficients(K: int) -> Tensor:
    """E (K+1, K+1), x T_k' = Σ_j E[k, j] T_j, from x T_j = ½(T_{j+1} + T_{|j−1|})."""
    D, E = derivative_coefficients(K), torch.zeros(K + 1, K + 1, dtype=torch.float64)
    E[:, 1:] += 0.5 * D[:, :-1]
    E[:, :-1] += 0.5 * D[:, 1:]
    E[:, 1] += 0.5 * D[:, 0]
    return E


def inner(A: Tensor, B: Tensor) -> Tensor:
    """<A, B> of batched matrices, (B,), float64: rows are summed in their own precision, the row sums in double."""
    return (A * B).sum(-1).double().sum(-1)


def square_norm(A: Tensor) -> Tensor:
    """<A, A> likewise, in one pass over A."""
    return torch.linalg.vector_norm(A, dim=-1).double().square().sum(-1)


def _trace(P: Tensor) -> Tensor:
    return P.diagonal(dim1=-2, dim2=-1).double().sum(-1)


def _doubled(T: list[Tensor], j: int) -> Tensor:
    """T_j = 2 T_{⌊j/2⌋} T_{⌈j/2⌉} − T_{j mod 2}."""
    i = j // 2
    P = torch.bmm(T[i - 1], T[j - i - 1]).mul_(2)
    if j % 2:
        return P.sub_(T[0])
    P.diagonal(dim1=-2, dim2=-1).sub_(1)
    return P


def _combination(T: list[Tensor], coefficients: Tensor) -> Tensor:
    """coefficients[0] I + Σ_j coefficients[j] T_j, (B, r, r); coefficients (B, up to q+1)."""
    scalars = coefficients[..., None, None].unbind(1)
    P = T[0] * scalars[1] if len(scalars) > 1 else torch.zeros_like(T[0])
    for T_j, scalar in zip(T[1:], scalars[2:], strict=False):
        P.addcmul_(T_j, scalar)
    P.diagonal(dim1=-2, dim2=-1).add_(coefficients[:, :1])
    return P


def _split(p: Tensor, q: int) -> tuple[Tensor, Tensor]:
    """p = low + T_q · high in the Chebyshev basis, p (B, K+1) of degree K−1 < 2q: T_{q+i} = 2 T_q T_i − T_{q−i}."""
    degree = p.shape[-1] - 2
    low, high = p[:, : q + 1].clone(), p.new_zeros(len(p), degree - q + 1 if degree > q else 0)
    for i in range(degree - q, 0, -1):
        high[:, i] = 2 * p[:, q + i]
        low[:, q - i] -= p[:, q + i]
    return low, high
