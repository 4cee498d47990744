"""What a command line composes to, as the identity of a run sees it."""

import functools
from typing import Any

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from cmr_runner.commands.composition import config_directory, job_choices, plain_config


@functools.cache
def composed(*overrides: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Choices and plain configuration of a command."""
    with initialize_config_dir(str(config_directory()), version_base="1.3"):
        cfg: DictConfig = compose("config", list(overrides), return_hydra_config=True)
    return job_choices(cfg.hydra), plain_config(cfg)
