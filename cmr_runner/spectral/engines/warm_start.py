"""The edge vectors of the last step, kept by group: where the next step's Krylov spaces start."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cmr_runner.spectral.engines.randomness import generator_for

NOISE = 0.1  # of the start's length: without it a vector that left the warm space could stay unseen for ever


class WarmStart:
    """start = v_max + v_min + a little noise drawn from (seed, group, step)."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._vectors: dict[str, Tensor] = {}  # group -> (B, 2, r)

    def start(self, group: str, W: Tensor, step: int) -> Tensor | None:
        """(B, r) for W (B, m, n) or (B, n, m), None where nothing fitting is kept."""
        B, r = len(W), min(W.shape[1:])
        kept = self._vectors.get(group)
        if kept is None or kept.shape != (B, 2, r):
            return None
        return kept.to(W).sum(1) + self.noise(group, W, step)

    def noise(self, group: str, W: Tensor, step: int) -> Tensor:
        """(B, r), rows of length about NOISE."""
        r = min(W.shape[1:])
        return torch.randn(len(W), r, generator=generator_for(self.seed, group, step)).mul_(NOISE / r**0.5).to(W)

    def keep(self, group: str, vectors: Tensor) -> None:
        self._vectors[group] = vectors

    def forget(self, group: str) -> None:
        self._vectors.pop(group, None)

    def state_dict(self) -> dict[str, Any]:
        return {"seed": self.seed, "vectors": dict(self._vectors)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seed = state["seed"]
        self._vectors = dict(state["vectors"])
