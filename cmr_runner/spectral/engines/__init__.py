"""Engines: ways to compute the penalty of a batch of same-shape matrices, all behind one interface."""

from collections.abc import Mapping
from inspect import signature
from typing import Any

from cmr_runner.checks import ArgumentError
from cmr_runner.spectral.engines.auto import AutoEngine
from cmr_runner.spectral.engines.base import Engine
from cmr_runner.spectral.engines.chunks import set_spectral_threads, shared_workers
from cmr_runner.spectral.engines.exact import ExactEngine
from cmr_runner.spectral.engines.fast import FastEngine
from cmr_runner.spectral.engines.staggered import StaggeredEngine
from cmr_runner.spectral.engines.stochastic import StochasticEngine

ENGINES: dict[str, type[Engine]] = {
    engine.name: engine for engine in (ExactEngine, FastEngine, StochasticEngine, StaggeredEngine, AutoEngine)
}


def build_engine(engine: str | Mapping[str, Any] | Engine, *, seed: int = 0) -> Engine:
    """An engine by its name, or by its name and options ({"name": "fast", "steps": 32}; None stands for the default).

    `seed` decides what it draws at random. An engine that is one already is returned as it is.
    """
    if isinstance(engine, Engine):
        return engine
    options = {"name": engine} if isinstance(engine, str) else engine
    if not isinstance(options, Mapping) or options.get("name") not in tuple(ENGINES):  # a list cannot be looked up
        got = options.get("name") if isinstance(options, Mapping) else options
        raise ArgumentError("engine", f"engine must be one of {', '.join(ENGINES)}, got {got!r}")
    given = {str(key): value for key, value in options.items() if key != "name" and value is not None}
    made = ENGINES[options["name"]]
    known = [name for name in signature(made).parameters if name != "seed"]
    for key in given:
        if key not in known:
            takes = f"it takes {', '.join(known)}" if known else "it takes none"
            raise ArgumentError(f"engine.{key}", f"engine.{key} is no option of {options['name']}: {takes}")
    try:
        return made(seed=seed, **given)
    except ArgumentError as error:
        raise ArgumentError(f"engine.{error.argument}", f"engine.{error}") from None


__all__ = [
    "ENGINES",
    "AutoEngine",
    "Engine",
    "ExactEngine",
    "FastEngine",
    "StaggeredEngine",
    "StochasticEngine",
    "build_engine",
    "set_spectral_threads",
    "shared_workers",
]
