"""The jobs of a sweep before they are launched: their settings, their configurations, how many run at a time."""

from __future__ import annotations

from pathlib import Path

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig

from cmr_runner.commands.settings import Mistake, cores, parallel_jobs


def job_overrides(config: DictConfig) -> list[list[str]] | None:
    """The settings of each job, by Hydra's own sweeper; None for a sweeper that chooses its jobs as it goes."""
    sweeper = config.hydra.sweeper
    if not str(sweeper._target_).endswith(f".{BasicSweeper.__name__}"):
        return None
    words = [*(f"{key}={value}" for key, value in (sweeper.params or {}).items()), *config.hydra.overrides.task]
    parser = OverridesParser.create(config_loader=GlobalHydra.instance().config_loader())
    (jobs,) = BasicSweeper.split_arguments(parser.parse_overrides(words), None)
    return [list(job) for job in jobs]


def job_configs(config: DictConfig) -> list[DictConfig]:
    """The configuration of each job of the sweep."""
    jobs = job_overrides(config)
    if jobs is None:
        chosen = config.hydra.runtime.choices["hydra/sweeper"]
        raise Mistake(f"dry=true: hydra/sweeper={chosen} chooses each job by the results of those before it")
    loader = GlobalHydra.instance().config_loader()
    return [loader.load_sweep_config(config, job) for job in jobs]


def job_directory(cfg: DictConfig) -> Path:
    """Where the job of this configuration keeps its run."""
    return Path(cfg.hydra.sweep.dir) / str(cfg.hydra.sweep.subdir)


def side_by_side(config: DictConfig) -> int:
    """How many jobs the launcher runs at a time, at most."""
    launcher, options = config.hydra.runtime.choices["hydra/launcher"], config.hydra.launcher
    if launcher == "joblib":
        return cores() if options.n_jobs < 0 else int(options.n_jobs)
    if launcher == "submitit_slurm":
        return int(options.array_parallelism)
    if launcher in ("submitit_local", "ray"):
        return parallel_jobs(config.threads)
    return 1
