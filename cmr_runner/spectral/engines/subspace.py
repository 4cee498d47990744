"""The edges of W followed from step to step: a few vectors at each edge, kept, and a filter that brings them up.

Between two steps W moves a little, and which of many close singular vectors comes last changes. So a few vectors of
each edge are carried along, as rows X: more at the low edge, where the spectrum is dense and ∇ρ_cond is large. A
Chebyshev polynomial of the Gram matrix G = WᵀW, small on the bulk of the spectrum and steep beyond it, turns them
towards the new edges, and Rayleigh–Ritz takes the best of the old and the new rows. A product of W with twenty rows
takes little longer than with a few, since reading W is what costs, and the filter needs neither orthogonalisation
between its products nor a large eigenproblem after them, as a Krylov space would.
"""

from __future__ import annotations

import math
from functools import cache, partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cmr_runner.spectral.decomposition import NonFiniteError, check_finite, converging
from cmr_runner.spectral.engines.chunks import LARGE, shared_workers
from cmr_runner.spectral.engines.host import Array, array, tensor
from cmr_runner.spectral.engines.lanczos import krylov_space

HIGH, LOW = 8, 12  # vectors at each edge
ROWS = HIGH + LOW
EDGES = slice(0, HIGH + 1, HIGH)  # the outermost of both, of ROWS
COLD_STEPS = 32  # Lanczos steps where nothing is kept yet
LEAST_BULK = 0.1  # of the spread: on the spectrum that it was taken from, the filter stays below T_m(20)
NARROW = 100  # times eps·λ_max: below, what the filter would magnify is rounding


class Ritz(NamedTuple):
    """Ritz pairs of G at both edges: the HIGH greatest, then the LOW least, each from outside inwards."""

    X: Tensor  # (B, ROWS, r) orthonormal rows
    lam: Tensor  # (B, ROWS) float64
    image: Tensor  # (B, 2, M) xWᵀ of the outermost two
    residual: Tensor  # (B, 2) ‖xG − λx‖ of these


def ritz_pairs(W: Tensor, X: Tensor, scale: Tensor, shift: Tensor, degree: int) -> Ritz:
    """From a tall W (B, M, r), orthonormal rows X near its edges and the `bulk` between: see `filtered`.

    With Y = QWᵀ the projection of G on the rows Q is YYᵀ: W is never squared, so singular values are as exact as W's
    own digits. Where W has moved so far from what is kept that the filter overflows, it starts anew. Raises
    NonFiniteError.
    """
    Y = torch.bmm(X, W.mT)
    F = filtered_in_parts(W, X, Y, scale, shift, degree)
    if not math.isfinite(F.sum()):
        X, lam = first_rows(W, X.sum(1))
        scale, shift = (tensor(values, W) for values in bulk(array(lam), torch.finfo(W.dtype).eps))
        Y = torch.bmm(X, W.mT)
        F = filtered_in_parts(W, X, Y, scale, shift, degree)
    new = torch.linalg.qr(torch.cat([X, F], 1).mT)[0].mT[:, X.shape[1] :]  # what F adds to X, orthonormal
    Q, Y = torch.cat([X, new], 1), torch.cat([Y, torch.bmm(new, W.mT)], 1)
    lam, S = at_ends(*converging(torch.linalg.eigh, torch.bmm(Y, Y.mT).double()))
    S = S.to(W)
    X, image = torch.bmm(S, Q), torch.bmm(S[:, EDGES], Y)
    difference = torch.bmm(image, W).addcmul_(X[:, EDGES], lam[:, EDGES, None].to(W), value=-1)
    return Ritz(X, lam, image, torch.linalg.vector_norm(difference, dim=-1))


def filtered_in_parts(W: Tensor, X: Tensor, Y: Tensor, scale: Tensor, shift: Tensor, degree: int) -> Tensor:
    """`filtered`; of a large W in two halves of the rows, which the workers share."""
    if W[0].numel() < LARGE:
        return filtered(W, X, Y, scale, shift, degree)
    halves = zip(X.chunk(2, 1), Y.chunk(2, 1), strict=True)
    return torch.cat(shared_workers().map([partial(filtered, W, x, y, scale, shift, degree) for x, y in halves]), 1)


def filtered(W: Tensor, X: Tensor, Y: Tensor, scale: Tensor, shift: Tensor, degree: int) -> Tensor:
    """X T_m(A), m = degree, with 2A = scale·G − shift, for rows X and Y = XWᵀ."""
    before, rows = X, torch.bmm(Y, W).mul_(scale / 2).addcmul_(X, shift, value=-0.5)
    for _ in range(degree - 1):  # T_{j+1} = 2A T_j − T_{j−1}
        image = torch.bmm(rows, W.mT).mul_(scale)
        before, rows = rows, torch.baddbmm(torch.addcmul(before, rows, shift), image, W, beta=-1)
    return rows


def bulk(lam: Array, eps: float) -> tuple[Array, Array]:
    """scale and shift, (B, 1, 1), that map what lies between the kept values (B, ROWS) to [−1, 1].

    It is taken to be at least LEAST_BULK of the spread: an edge that stands far out would otherwise drown all other
    rows. eps: of the precision of W.
    """
    top, high, bottom, low = lam[:, 0], lam[:, HIGH - 1], lam[:, HIGH], lam[:, -1]
    width = np.maximum(np.maximum(high - low, LEAST_BULK * (top - bottom)), 2 * NARROW * eps * top)
    width = np.where(width > 0, width, 1)  # the zero matrix
    return (4 / width)[:, None, None], (2 * (high + low) / width)[:, None, None]


def first_rows(W: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
    """X and lam to begin with, from a Krylov space of `start` (B, r). Raises NonFiniteError."""
    check_finite(W)
    Q, QG = krylov_space(lambda X: torch.bmm(torch.bmm(X, W.mT), W), start, COLD_STEPS)
    H = torch.bmm(QG, Q.mT).double()
    if not math.isfinite(H.sum()):
        raise NonFiniteError(f"matrices of shape {tuple(W.shape[1:])} are too large to square in {W.dtype}")
    lam, S = at_ends(*converging(torch.linalg.eigh, (H + H.mT) / 2))
    return orthonormal(torch.bmm(S.to(W), Q)), lam


def at_ends(theta: Tensor, S: Tensor) -> tuple[Tensor, Tensor]:
    """Of ascending eigenvalues (B, k) and their vectors (B, k, k) those kept, the vectors as rows."""
    ends = _ends(theta.shape[-1], theta.device)
    return theta.index_select(-1, ends), S.index_select(-1, ends).mT


@cache
def _ends(count: int, device: torch.device) -> Tensor:
    """Each edge from outside inwards, of so many ascending values."""
    return torch.tensor([*range(count - 1, count - 1 - HIGH, -1), *range(LOW)], device=device)


def orthonormal(rows: Tensor) -> Tensor:
    """Orthonormal rows (B, b, r) with the span of the given ones, in their order."""
    return torch.linalg.qr(rows.mT)[0].mT
