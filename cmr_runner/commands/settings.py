"""The top-level keys of the configuration, checked."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

DEVICES = ("auto", "cpu", "cuda", "mps")
ON_FAILURE = ("continue", "stop")
PROGRESS = ("auto", "live", "lines", "none")


class Mistake(ValueError):
    """Something the user wrote; the message names the key, the value and what is allowed."""


@dataclass(frozen=True)
class Settings:
    seed: int
    device: str
    threads: int
    force: bool
    on_failure: str
    debug: bool
    progress: str


def settings_of(config: Mapping[str, Any]) -> Settings:
    return Settings(
        seed=_integer("seed", config["seed"], least=0),
        device=_one_of("device", config["device"], DEVICES),
        threads=_integer("threads", config["threads"], least=1),
        force=_boolean("force", config["force"]),
        on_failure=_one_of("on_failure", config["on_failure"], ON_FAILURE),
        debug=_boolean("debug", config["debug"]),
        progress=_one_of("progress", config["progress"], PROGRESS),
    )


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def parallel_jobs(threads: int) -> int:
    """How many jobs may run side by side so that jobs × threads <= cores."""
    return max(1, cores() // max(1, int(threads)))


def _integer(key: str, value: Any, *, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**63:
        raise Mistake(f"{key} must be an integer >= {least}, got {value!r}")
    return value


def _boolean(key: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise Mistake(f"{key} must be true or false, got {value!r}")
    return value


def _one_of(key: str, value: Any, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise Mistake(f"{key} must be one of {', '.join(allowed)}, got {value!r}")
    return str(value)
