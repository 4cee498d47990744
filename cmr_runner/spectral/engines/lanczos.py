"""The two edges of a symmetric spectrum from a short Krylov space, batched over matrices.

Vectors are rows, (B, k, r): a product of few rows with a matrix is several times quicker in batched BLAS than the
same product of few columns.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

RowsTimesGram = Callable[[Tensor], Tensor]  # X (B, k, r) -> X G


class RitzEdges(NamedTuple):
    """The greatest and the least Ritz pair, in this order along dim 1."""

    theta: Tensor  # (B, 2) Ritz values
    X: Tensor  # (B, 2, r) unit Ritz vectors, as rows
    residual: Tensor  # (B, 2) ‖xG − θx‖: some eigenvalue lies within it of θ


def ritz_edges(times_gram: RowsTimesGram, start: Tensor, steps: int) -> RitzEdges:
    """Lanczos with full re-orthogonalisation from `start` (B, r), then Rayleigh–Ritz on the whole basis.

    Departures from the textbook: the projection H = Q G Qᵀ is formed in full, not read off the recurrence, so that
    rounding in the recurrence costs no accuracy; and where the Krylov space is exhausted (a matrix with few distinct
    eigenvalues, such as a multiple of an orthogonal one) it goes on from a fixed pseudo-random row instead of
    dividing by zero.
    """
    B, r = start.shape
    steps = min(steps, r)
    fresh = fresh_rows(steps + 1, r).to(start)
    Q = start.new_empty(B, steps, r)
    QG = start.new_empty(B, steps, r)
    q = _unit(_unless_tiny(start.unsqueeze(1), fresh[0], floor=torch.finfo(start.dtype).tiny))
    for j in range(steps):
        Q[:, j : j + 1] = q
        QG[:, j : j + 1] = q = times_gram(q)
        if j + 1 < steps:
            q = _next_row(q, Q[:, : j + 1], fresh[j + 1])
    H = torch.bmm(QG, Q.mT).double()
    theta, S = torch.linalg.eigh((H + H.mT) / 2)
    theta, S = theta[:, [-1, 0]].to(start), S[:, :, [-1, 0]].mT.to(start)  # (B, 2), (B, 2, steps)
    X = torch.bmm(S, Q)
    residual = torch.linalg.vector_norm(torch.bmm(S, QG) - theta.unsqueeze(-1) * X, dim=-1)
    return RitzEdges(theta, X, residual)


def fresh_rows(count: int, r: int) -> Tensor:
    """The same pseudo-random rows on every call, (count, r): part of the algorithm, not of the run's randomness."""
    generator = torch.Generator().manual_seed(0x5EED)
    return torch.randn(count, r, generator=generator)


def _next_row(w: Tensor, Q: Tensor, fresh: Tensor) -> Tensor:
    """w made orthogonal to the rows of Q, twice because once leaves eps·‖w‖/‖remainder‖ behind, and normalised."""
    floor = 1e-5 * torch.linalg.vector_norm(w, dim=-1, keepdim=True)
    w = _unless_tiny(_without(w, Q), fresh, floor)
    return _unit(_without(w, Q))


def _without(w: Tensor, Q: Tensor) -> Tensor:
    return torch.baddbmm(w, torch.bmm(w, Q.mT), Q, alpha=-1)


def _unless_tiny(w: Tensor, fresh: Tensor, floor: Tensor | float) -> Tensor:
    return torch.where(torch.linalg.vector_norm(w, dim=-1, keepdim=True) > floor, w, fresh)


def _unit(w: Tensor) -> Tensor:
    return w / torch.linalg.vector_norm(w, dim=-1, keepdim=True)
