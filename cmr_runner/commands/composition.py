"""Where a configuration's run is kept: Hydra's directory settings are resolved by the functions here."""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from cmr_runner.commands.settings import (
    DEVICES,
    ON_FAILURE,
    PROGRESS,
    SPECTRA,
    cores,
    parallel_jobs,
)
from cmr_runner.runs.identity import Identity, document, document_hash, readable_name

NO_EXPERIMENT = "single"
CONFIG_NAME = "config"


def config_directory() -> Path:
    """conf/: inside the package in a wheel, at the top of the checkout in an editable install."""
    package = Path(__file__).resolve().parents[1]
    for candidate in (package / "conf", package.parent / "conf"):
        if (candidate / f"{CONFIG_NAME}.yaml").is_file():
            return candidate
    raise FileNotFoundError(f"no conf/{CONFIG_NAME}.yaml in {package} or beside it: is the installation complete?")


def plain_config(cfg: DictConfig) -> dict[str, Any]:
    """The job's configuration, resolved, as plain containers, without Hydra's own node."""
    nodes = {str(key): cfg[key] for key in cfg if key != "hydra"}
    return {
        key: OmegaConf.to_container(node, resolve=True) if OmegaConf.is_config(node) else node
        for key, node in nodes.items()
    }


def job_choices(hydra_node: DictConfig) -> dict[str, str | None]:
    """Which file of each group was composed, Hydra's own groups aside."""
    choices = hydra_node.runtime.choices
    return {str(group): choices[group] for group in choices if not str(group).startswith("hydra/")}


def identity_of(cfg: DictConfig, hydra_node: DictConfig) -> Identity:
    config = plain_config(cfg)
    choices = job_choices(hydra_node)
    default_choices, default_config = _defaults(hydra_node.job.config_name, tuple(sorted(choices.items())))
    decided = document(choices, config)
    return Identity(
        hash=document_hash(decided),
        experiment=_collection(cfg, choices),
        name=readable_name(choices, config, default_choices, default_config),
        revision=decided.get("revision", 0),
    )


@functools.lru_cache(maxsize=64)
def _defaults(
    config_name: str, choices: tuple[tuple[str, str | None], ...]
) -> tuple[Mapping[str, str | None], Mapping[str, Any]]:
    """What a bare command would choose in this experiment, and the configuration that `choices` alone give."""
    loader = GlobalHydra.instance().config_loader()
    experiment = [f"experiment={choice}" for group, choice in choices if group == "experiment" and choice]
    bare = loader.load_configuration(config_name, experiment, run_mode=RunMode.RUN)
    every = [f"{group}={choice}" for group, choice in choices if choice is not None]
    chosen = loader.load_configuration(config_name, every, run_mode=RunMode.RUN)
    return job_choices(bare.hydra), plain_config(chosen)


def register_resolvers() -> None:
    """`${cmr.experiment:}` and `${cmr.run:}` for hydra.run.dir and hydra.sweep; the others for launchers."""
    OmegaConf.register_new_resolver("cmr.experiment", _experiment, replace=True)
    OmegaConf.register_new_resolver("cmr.run", _run_name, replace=True)
    OmegaConf.register_new_resolver("cmr.choices", _choices, replace=True)
    OmegaConf.register_new_resolver("cmr.jobs", parallel_jobs, replace=True)
    OmegaConf.register_new_resolver("cmr.cores", cores, replace=True)
    OmegaConf.register_new_resolver("cmr.unless", _unless, replace=True)


def _unless(condition: Any, value: Any) -> Any:
    return value if condition is None else None


def _experiment(*, _root_: DictConfig) -> str:
    return _collection(_root_, job_choices(_root_.hydra))


def _collection(cfg: DictConfig, choices: Mapping[str, str | None]) -> str:
    """What the run is kept under: the user's name for the sweep, else the experiment."""
    name = cfg.get("name")  # checked before any directory is made
    return str(name) if name is not None else choices.get("experiment") or NO_EXPERIMENT


def _choices() -> str:
    """What `--help` says of keys that take one of a few words."""
    from cmr_runner.regularizers.mixing import Mixing
    from cmr_runner.spectral.engines import ENGINES
    from cmr_runner.spectral.moments import GramReading

    lines = {
        "regularizer.engine": ENGINES,
        "regularizer.mixing": get_args(Mixing),
        "regularizer.gram": get_args(GramReading),
        "device": DEVICES,
        "progress": PROGRESS,
        "on_failure": ON_FAILURE,
        "spectra": SPECTRA,
    }
    return "\n".join(f"  {key:<20} {' | '.join(values)}" for key, values in lines.items())


def _run_name(*, _root_: DictConfig) -> str:
    return identity_of(_root_, _root_.hydra).directory_name
