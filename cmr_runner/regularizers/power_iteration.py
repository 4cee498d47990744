"""Largest singular values by power iteration, warm-started from step to step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from cmr_runner.checks import integer
from cmr_runner.spectral.engines.randomness import generator_for

FIRST_ITERATIONS = 20  # from a random vector; afterwards the weights move little between two steps

Pair = TypeVar("Pair", bound=tuple[Tensor, ...])


class PowerIteration(Generic[Pair]):
    """Runs `iterate(W, v, iterations)` from the vector that the group's last step ended with.

    The first vector depends on (seed, group) alone, and the vectors are in the state_dict, so that a resumed run equals
    an uninterrupted one. `iterate` returns a tuple whose last entry is the next vector, (B, r).
    """

    def __init__(self, iterate: Callable[[Tensor, Tensor, int], Pair], iterations: int, seed: int) -> None:
        self.iterate, self.iterations, self.seed = iterate, integer("iterations", iterations, least=1), seed
        self.vectors: dict[str, Tensor] = {}

    def __call__(self, W: Tensor, group: str, length: int) -> Pair:
        held = self.vectors.get(group)
        if held is None or held.shape != (len(W), length):
            start = first_vectors(self.seed, group, W.shape[0], length).to(W)
            result = self.iterate(W, start, max(self.iterations, FIRST_ITERATIONS))
        else:
            result = self.iterate(W, held.to(W), self.iterations)
        self.vectors[group] = result[-1]
        return result

    def forget(self, group: str) -> None:
        self.vectors.pop(group, None)

    def state_dict(self) -> dict[str, Any]:
        return dict(self.vectors)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.vectors = dict(state)


def first_vectors(seed: int, group: str, count: int, length: int) -> Tensor:
    """Random unit rows (count, length)."""
    rows = torch.randn(count, length, generator=generator_for(seed, group, step=0))
    return rows / torch.linalg.vector_norm(rows, dim=-1, keepdim=True)


def leading_pair(W: Tensor, v: Tensor, iterations: int) -> tuple[Tensor, Tensor, Tensor]:
    """(σ, u, v), (B,), (B, m), (B, n), of W (B, m, n): v ← WᵀW v / ‖·‖ `iterations` times, then σ = ‖Wv‖, u = Wv/σ.

    σ is exact for the v it comes with (it bounds σ_max from below), and u vᵀ is its gradient in W at that v.
    """
    for _ in range(iterations):
        v = unit_or(row_times(times_column(W, v), W), v)
    u = times_column(W, v)
    sigma = torch.linalg.vector_norm(u, dim=-1)
    return sigma, u / _positive(sigma).unsqueeze(-1), v


def outer(u: Tensor, v: Tensor) -> Tensor:
    """u vᵀ of (B, m) and (B, n) -> (B, m, n); a broadcast product, several times faster than bmm here."""
    return u.unsqueeze(-1) * v.unsqueeze(-2)


def unit_or(w: Tensor, otherwise: Tensor) -> Tensor:
    """w / ‖w‖ along the last dimension; `otherwise` where w = 0, which the iteration would never leave."""
    norm = torch.linalg.vector_norm(w, dim=-1, keepdim=True)
    return torch.where(norm > torch.finfo(w.dtype).tiny, w / _positive(norm), otherwise)


def _positive(norm: Tensor) -> Tensor:
    return norm.clamp_min(torch.finfo(norm.dtype).tiny)


# A column on the right and a row on the left: batched BLAS is up to ten times slower the other way round.
def times_column(W: Tensor, v: Tensor) -> Tensor:
    return torch.bmm(W, v.unsqueeze(-1)).squeeze(-1)


def row_times(u: Tensor, W: Tensor) -> Tensor:
    return torch.bmm(u.unsqueeze(-2), W).squeeze(-2)
