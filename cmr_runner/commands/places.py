"""Where a run may be written: below output_root, which is asked before Hydra makes any directory."""

import os
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from cmr_runner.checks import ArgumentError, integer, require
from cmr_runner.commands.settings import Mistake, sweep_name


def output_root(config: DictConfig) -> Path:
    """The directory that all runs lie below."""
    root = config.get("output_root")
    try:
        sweep_name(config.get("name"))  # the next part of the path
        require("output_root", root, isinstance(root, str) and root.strip() != "" and "\0" not in root, "a path")
    except ArgumentError as error:
        raise Mistake(str(error)) from None
    return Path(str(root))


def check_run(config: DictConfig) -> None:
    """The directory of a single run, before it is made."""
    root = output_root(config)
    check_below(root, "hydra.run.dir", config.hydra.run.dir)


def check_sweep(config: DictConfig) -> None:
    """The directories of a sweep, before the first is made. Each job checks its own again: they can differ."""
    root = output_root(config)
    sweep, sweeper = config.hydra.sweep, config.hydra.sweeper
    directory = os.path.join(str(sweep.dir), str(sweep.subdir))
    if _absolute(sweep.dir) != _absolute(root):
        check_below(root, "hydra.sweep.dir", sweep.dir)
    check_below(root, "hydra.sweep.subdir", directory)
    if _absolute(directory) == _absolute(sweep.dir):
        raise Mistake(f"hydra.sweep.subdir must be a directory for each job, got {str(sweep.subdir)!r}")
    if sweeper.get("max_batch_size") is not None:
        try:
            integer("hydra.sweeper.max_batch_size", sweeper.max_batch_size, least=1)
        except ArgumentError as error:
            raise Mistake(str(error)) from None


def check_below(root: Path, key: str, directory: Any) -> None:
    """Raise Mistake unless `directory`, the value of `key`, lies below `root`."""
    if not str(directory).strip() or _absolute(root) not in _absolute(directory).parents:
        raise Mistake(f"{key} must be a directory below output_root ({root}), got {str(directory)!r}")


def _absolute(path: Any) -> Path:
    return Path(os.path.abspath(str(path)))
