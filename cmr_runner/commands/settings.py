"""The top-level keys of the configuration, checked."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from cmr_runner.checks import ArgumentError, boolean, integer, one_of, require

DEVICES = ("auto", "cpu", "cuda", "mps")
ON_FAILURE = ("continue", "stop")
GROUPS = ("model", "init", "regularizer", "optimizer", "schedule", "dataset", "trainer")
SPECTRA = ("ends", "all")
PROGRESS = ("auto", "live", "lines", "none")
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,59}")
LARGEST_SEED = 2**63 - 1  # torch's
MOST_THREADS = 4096  # torch takes any number and starts so many
SPECTRAL_THREADS = 4  # the paper's layers make a handful of tasks a step: more threads would wait


class Mistake(ValueError):
    """Something the user wrote; the message names the key, the value and what is allowed."""


@dataclass(frozen=True)
class Settings:
    seed: int
    device: str
    threads: int
    spectral_threads: int
    force: bool
    on_failure: str
    debug: bool
    progress: str
    name: str | None
    spectra: str
    dry: bool


def settings_of(config: Mapping[str, Any], *, alone: bool = True) -> Settings:
    """`alone`: no other job shares the cores, so that the spectra may be computed beside training on the others."""
    _check_keys(config)
    try:
        threads = integer("threads", config["threads"], least=1, most=MOST_THREADS)
        spectral = config["spectral_threads"]
        if spectral is None:
            spectral = max(threads, min(cores(), SPECTRAL_THREADS)) if alone else threads
        return Settings(
            seed=integer("seed", config["seed"], least=0, most=LARGEST_SEED),
            device=one_of("device", config["device"], DEVICES),
            threads=threads,
            spectral_threads=integer("spectral_threads", spectral, least=1, most=MOST_THREADS),
            force=boolean("force", config["force"]),
            on_failure=one_of("on_failure", config["on_failure"], ON_FAILURE),
            debug=boolean("debug", config["debug"]),
            progress=one_of("progress", config["progress"], PROGRESS),
            name=sweep_name(config["name"]),
            spectra=one_of("spectra", config["spectra"], SPECTRA),
            dry=boolean("dry", config["dry"]),
        )
    except ArgumentError as error:
        raise Mistake(str(error)) from None


def sweep_name(name: Any) -> str | None:
    """`name` as a directory's name; None where there is none."""
    if name is None:
        return None
    plain = isinstance(name, str | int | float) and NAME.fullmatch(str(name)) is not None
    require("name", name, plain, "letters, digits, '.', '_' and '-' only, 60 at most")
    return str(name)


def _check_keys(config: Mapping[str, Any]) -> None:
    """Refuse a key that `+key=value` put beside the known ones, where nothing would read it, and one that `~key` took
    away."""
    known = {field.name for field in fields(Settings)} | {"output_root", "logger", *GROUPS}
    for key in sorted(config.keys() - known, key=str):
        meant = [f"{group}.{key}" for group in GROUPS if key in (config.get(group) or {})]
        hint = f"did you mean {meant[0]}?" if meant else f"keys belong to one of {', '.join(GROUPS)}"
        raise Mistake(f"{key}={config[key]}: no such key; {hint}")
    for key in sorted(known - config.keys()):
        raise Mistake(f"{key} must be given: {key}=…")


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def parallel_jobs(threads: int) -> int:
    """How many jobs may run side by side so that jobs × threads <= cores."""
    return max(1, cores() // max(1, int(threads)))
