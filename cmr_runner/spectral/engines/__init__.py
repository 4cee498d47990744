"""Engines: ways to compute the penalty of a batch of same-shape matrices, all behind one interface."""

from cmr_runner.spectral.engines.base import Engine
from cmr_runner.spectral.engines.exact import ExactEngine

__all__ = ["Engine", "ExactEngine"]
