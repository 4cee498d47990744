"""Engines: ways to compute the penalty of a batch of same-shape matrices, all behind one interface."""

from cmr_runner.spectral.engines.base import Engine
from cmr_runner.spectral.engines.exact import ExactEngine

__all__ = ["Engine", "ExactEngine", "build_engine"]


def build_engine(name: str, *, seed: int = 0) -> Engine:
    """The engine of that name."""
    if name not in ("exact", "auto"):
        raise ValueError(f"engine must be one of exact, auto, got {name}")
    return ExactEngine()
