"""The edges of W followed from step to step: a few vectors at each edge, kept, and a few products to bring them up.

A product of W with six rows takes little longer than with one, since reading W is what costs. So a step spends its
products on a block: from the kept rows X the space of X, XG, XG², XG³ with G = WᵀW, and its Ritz vectors at both ends
are what is kept next. Kept neighbours of an edge matter where the spectrum is dense there: which of them comes last
changes from step to step.
"""

from __future__ import annotations

import torch
from torch import Tensor

from cmr_runner.spectral.decomposition import NonFiniteError, check_finite, converging
from cmr_runner.spectral.engines.edges import Edges, edges_from
from cmr_runner.spectral.engines.lanczos import row_lengths, without

KEPT = 3  # vectors at each edge
ACCEPTED_RESIDUAL = 0.2  # of the spread: the Rayleigh gap goes with its square, and kept neighbours are no error


def subspace_edges(W: Tensor, X: Tensor, blocks: int) -> tuple[Edges, Tensor, Tensor]:
    """Edges of a tall W (B, M, r), the residuals ‖xG − λx‖ of both (B, 2), and what to keep, from X (B, 2·KEPT, r).

    Kept are unit rows, the KEPT greatest first, then the KEPT least, each from the edge inwards. With Y = QWᵀ, which
    every product with G passes through, the projection of G is YYᵀ: W is never squared, so singular values are as
    exact as W's own digits. Raises NonFiniteError.
    """
    r = X.shape[2]
    images = krylov_images(W, X, min(blocks, r // X.shape[1]))
    Y = images[:, :, 2 * r :]
    H = torch.bmm(Y, Y.mT).double()
    if not torch.isfinite(H.sum()):  # every entry of W is in it
        check_finite(W)
        raise NonFiniteError(f"matrices of shape {tuple(W.shape[1:])} are too large to square in {W.dtype}")
    theta, S = converging(torch.linalg.eigh, H)
    kept = [*range(-1, -1 - KEPT, -1), *range(KEPT)]
    X, XG, XW = torch.bmm(S[:, :, kept].mT.to(W), images).split([r, r, W.shape[1]], -1)
    V = X[:, ::KEPT]
    residual = row_lengths(XG[:, ::KEPT] - theta[:, [-1, 0], None].to(W) * V).squeeze(-1)
    return edges_from(XW[:, ::KEPT], V, residual, ACCEPTED_RESIDUAL), residual, X


def krylov_images(W: Tensor, X: Tensor, blocks: int) -> Tensor:
    """Q, P = QG and Y = QWᵀ side by side, (B, rows, r + r + M), so that what combines their rows is one product.

    Q has orthonormal rows: the space of X (B, b, r), XG, XG², … as far as they go. Block Gram–Schmidt, three times
    over: the first pass may leave rounding alone where the space is exhausted, which the second clears of the rows
    found before; `qr` then makes unit rows even of nearly dependent ones, and magnifies what rounding left in them, so
    once more.
    """
    B, b, r = X.shape
    images = W.new_empty(B, blocks * b, 2 * r + W.shape[1])
    Q, P, Y = images.split([r, r, W.shape[1]], -1)
    block, product = orthonormal(X), X
    for new in (slice(j, j + b) for j in range(0, blocks * b, b)):
        if new.start:
            found = Q[:, : new.start]
            block = orthonormal(without(without(product, found), found))
            block = orthonormal(without(block, found))
        # Copied in: with such an `out`, bmm would take the matrices one by one.
        Q[:, new] = block
        Y[:, new] = image = torch.bmm(block, W.mT)
        P[:, new] = product = torch.bmm(image, W)
    return images


def orthonormal(rows: Tensor) -> Tensor:
    """Orthonormal rows with the span of the given ones (B, b, r); of fewer directions than rows, others added."""
    return torch.linalg.qr(rows.mT)[0].mT
