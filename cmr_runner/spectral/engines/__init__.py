"""Engines: ways to compute the penalty of a batch of same-shape matrices, all behind one interface."""

from typing import Any

from cmr_runner.spectral.engines.auto import AutoEngine
from cmr_runner.spectral.engines.base import Engine
from cmr_runner.spectral.engines.chunks import set_spectral_threads, shared_workers
from cmr_runner.spectral.engines.exact import ExactEngine
from cmr_runner.spectral.engines.fast import FastEngine
from cmr_runner.spectral.engines.memory import keep_freed_memory
from cmr_runner.spectral.engines.stochastic import StochasticEngine

ENGINES = ("exact", "fast", "stochastic", "auto")


def build_engine(name: str, *, seed: int, **options: Any) -> Engine:
    """The engine of that name; `seed` decides what it draws at random, `options` are its constructor's."""
    if name == "exact":
        return ExactEngine(**options)
    if name == "fast":
        return FastEngine(seed=seed, **options)
    if name == "stochastic":
        return StochasticEngine(seed=seed, **options)
    if name == "auto":
        return AutoEngine(seed=seed, **options)
    raise ValueError(f"engine must be one of {', '.join(ENGINES)}, got {name}")


__all__ = [
    "ENGINES",
    "AutoEngine",
    "Engine",
    "ExactEngine",
    "FastEngine",
    "StochasticEngine",
    "build_engine",
    "keep_freed_memory",
    "set_spectral_threads",
    "shared_workers",
]
