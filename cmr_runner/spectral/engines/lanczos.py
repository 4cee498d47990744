"""The two edges of a symmetric spectrum from a short Krylov space, batched over matrices.

Vectors are rows, (B, k, r): a product of few rows with a matrix is several times faster in batched BLAS than the
same product of few columns.
"""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from cmr_runner.spectral.decomposition import converging

RowsTimesGram = Callable[[Tensor], Tensor]  # X (B, k, r) -> X G

TRACE = 0.03  # times √eps of ‖qG‖: far above rounding, far below what moves a Ritz value


class RitzEdges(NamedTuple):
    """The greatest and the least Ritz pair, in this order along dim 1."""

    X: Tensor  # (B, 2, r) unit Ritz vectors, as rows
    residual: Tensor  # (B, 2) ‖xG − θx‖: some eigenvalue lies within it of the Ritz value θ


def ritz_edges(times_gram: RowsTimesGram, start: Tensor, steps: int) -> RitzEdges:
    """Rayleigh–Ritz on the Krylov space of `start` (B, r).

    Departure from the textbook: the projection H = Q G Qᵀ is formed in full, not read off the recurrence, so that
    rounding in the recurrence costs no accuracy.
    """
    Q, QG = krylov_space(times_gram, start, steps)
    H = torch.bmm(QG, Q.mT).double()
    theta, S = converging(torch.linalg.eigh, (H + H.mT) / 2)
    theta, S = theta[:, [-1, 0]].to(start), S[:, :, [-1, 0]].mT.to(start)  # (B, 2), (B, 2, steps)
    X = torch.bmm(S, Q)
    return RitzEdges(X, row_lengths(torch.bmm(S, QG) - theta.unsqueeze(-1) * X).squeeze(-1))


def krylov_space(times_gram: RowsTimesGram, start: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """Orthonormal rows Q (B, steps, r) of the Krylov space of `start` (B, r), and QG: Lanczos, fully orthogonalised.

    Departure from the textbook: each new row carries a trace of a fixed pseudo-random one, which takes over where the
    space is exhausted (a matrix with few distinct eigenvalues, such as a multiple of an orthogonal one) instead of a
    division by zero. Few and plain operations: at this size Python is half the cost.
    """
    B, r = start.shape
    steps = min(steps, r)
    fresh = fresh_rows(steps, r).to(start)
    Q = start.new_empty(B, steps, r)
    rows = Q.split(1, 1)
    products: list[Tensor] = []
    w = torch.where(row_lengths(start) > torch.finfo(start.dtype).tiny, start, fresh[0]).unsqueeze(1)
    for j in range(steps):
        w = times_gram(torch.div(w, row_lengths(w), out=rows[j]))
        products.append(w)
        if j == 0:
            length = row_lengths(w)
            trace = fresh * torch.where(
                length > 0, TRACE * torch.finfo(start.dtype).eps ** 0.5 * length, 1
            )  # (B, steps, r)
            traces = trace.split(1, 1)
        if j + 1 < steps:
            # Twice, because once leaves rounding of the size eps·‖w‖ along the rows already there.
            found = Q[:, : j + 1]
            w = without(without(w, found).add_(traces[j + 1]), found)
    return Q, torch.cat(products, 1)


@cache
def fresh_rows(count: int, r: int) -> Tensor:
    """The same pseudo-random unit rows on every call, (count, r): part of the algorithm, not of a run's randomness."""
    generator = torch.Generator().manual_seed(0x5EED)
    rows = torch.randn(count, r, generator=generator)
    return rows / row_lengths(rows)


def without(rows: Tensor, found: Tensor) -> Tensor:
    """The rows (B, b, r) less their part in the span of the orthonormal ones found before (B, j, r)."""
    return torch.baddbmm(rows, torch.bmm(rows, found.mT), found, alpha=-1)


def row_lengths(w: Tensor) -> Tensor:
    return torch.linalg.vector_norm(w, dim=-1, keepdim=True)
