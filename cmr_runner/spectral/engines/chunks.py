"""A batch cut into pieces that the workers share, and put together again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from cmr_runner.checks import integer
from cmr_runner.spectral.engines.workers import Workers
from cmr_runner.spectral.penalty import LayerPenalty

CHUNK_ENTRIES = 7 * 256 * 256  # of W: the paper's 13 square layers in two pieces; smaller ones, and Python costs more

LARGE = 1 << 19  # entries from which a product of W with a few rows takes longer than to hand it to another thread

COUNTS = ("skipped", "fallbacks")  # of LayerPenalty

_shared: Workers | None = None


def shared_workers() -> Workers:
    """The process's one pool: a helper for each intra-op thread but one that torch had when it was first asked."""
    global _shared
    if _shared is None:
        _shared = Workers(torch.get_num_threads() - 1)
    return _shared


def set_spectral_threads(threads: int) -> None:
    """Use this many threads for spectral work, the calling one included. No result depends on it."""
    integer("threads", threads, least=1)
    global _shared
    if _shared is None or _shared.helpers != threads - 1:
        _shared = Workers(threads - 1)


def chunk_bounds(W: Tensor, entries: int = CHUNK_ENTRIES) -> list[tuple[int, int]]:
    """Near equal pieces [start, stop) of W (B, m, n), by shape alone: rounding never depends on load."""
    B, most = len(W), max(1, entries // max(1, W[0].numel()))
    pieces = -(-B // most)
    return [(B * i // pieces, B * (i + 1) // pieces) for i in range(pieces)]


# Of W[i:j], with a tensor of its shape that may serve for the gradient: its penalty, its edge vectors (j − i, 2, r).
Piece = Callable[[int, int, Tensor], tuple[LayerPenalty, Tensor]]


def in_pieces(W: Tensor, piece: Piece, entries: int = CHUNK_ENTRIES) -> tuple[LayerPenalty, Tensor]:
    """The penalty and the edge vectors of W (B, m, n) from those of its pieces, which the workers share.

    Each piece leaves its gradient in its part of one tensor: to join them afterwards would hold all of them twice.
    """
    gradient = torch.empty_like(W, memory_format=torch.contiguous_format)

    def placed(i: int, j: int) -> tuple[LayerPenalty, Tensor]:
        out = gradient[i:j]
        penalty, V = piece(i, j, out)
        if penalty.dense is not out:
            out.copy_(penalty.gradient)
        return replace(penalty, dense=out[:0]), V

    results = shared_workers().map([partial(placed, i, j) for i, j in chunk_bounds(W, entries)])
    whole = joined([penalty for penalty, _ in results])
    return replace(whole, dense=gradient), torch.cat([V for _, V in results])


def joined(parts: list[LayerPenalty]) -> LayerPenalty:
    """Penalties of consecutive pieces as one batch."""
    if len(parts) == 1:
        return parts[0]
    merged: dict[str, Any] = {}
    for name in (f.name for f in fields(LayerPenalty)):
        values = [getattr(part, name) for part in parts]
        if isinstance(values[0], Tensor):
            merged[name] = torch.cat(values)
        else:  # counts add up; a flag, or a tensor that is not there, is the same in all of them
            merged[name] = sum(values) if name in COUNTS else values[0]
    return LayerPenalty(**merged)


def replaced(penalty: LayerPenalty, mask: Tensor, values: LayerPenalty) -> LayerPenalty:
    """The penalty with the matrices under mask (B,) taken from `values`, which holds those alone; counts add up."""
    merged: dict[str, Any] = {}
    for name in (f.name for f in fields(LayerPenalty)):
        old, new = getattr(penalty, name), getattr(values, name)
        if isinstance(old, Tensor):
            merged[name] = old.index_put((mask,), new.to(old.dtype))
        else:
            merged[name] = old + new if name in COUNTS else old
    return LayerPenalty(**merged)
