"""The engine by the size of the layer."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from cmr_runner.spectral.engines.base import Engine
from cmr_runner.spectral.engines.exact import ExactEngine
from cmr_runner.spectral.engines.fast import FastEngine
from cmr_runner.spectral.engines.stochastic import StochasticEngine
from cmr_runner.spectral.penalty import LayerPenalty, PenaltySpec

# Where the measured times of docs/engines.md cross. Between `fast` and `stochastic` the times cross near a width of
# 256 already; `fast` is kept up to where its time passes that of a training step, because its gradient has no noise.
EXACT_SIDE = 32
FAST_WORK = 2 * 512**3  # of m·n·min(m, n), a quarter of the multiply-adds that `fast` does


class AutoEngine:
    """`exact` where the short side is tiny, `stochastic` where a product of the layer's size is dear, else `fast`."""

    name = "auto"

    def __init__(self, *, seed: int = 0) -> None:
        engines = (ExactEngine(), FastEngine(seed=seed), StochasticEngine(seed=seed))
        self.engines: dict[str, Engine] = {engine.name: engine for engine in engines}

    def name_for(self, shape: tuple[int, int]) -> str:
        m, n = shape
        r = min(m, n)
        if r <= EXACT_SIDE:
            return "exact"
        return "fast" if m * n * r <= FAST_WORK else "stochastic"

    def penalty(self, W: Tensor, spec: PenaltySpec, *, group: str, step: int) -> LayerPenalty:
        engine = self.engines[self.name_for((W.shape[-2], W.shape[-1]))]
        return engine.penalty(W, spec, group=group, step=step)

    def state_dict(self) -> dict[str, Any]:
        return {name: engine.state_dict() for name, engine in self.engines.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, engine in self.engines.items():
            engine.load_state_dict(state[name])
