"""Mistakes on the command line, each explained in one line: Hydra's exceptions, translated."""

from __future__ import annotations

import difflib
import importlib.util
import re
import sys
from collections.abc import Iterable
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra._internal.utils import get_args_parser
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import (
    ConfigCompositionException,
    HydraException,
    MissingConfigException,
    OverrideParseException,
)
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from cmr_runner.commands.composition import CONFIG_NAME, config_directory

LAUNCHER_PLUGINS = {"submitit_local": "submitit", "submitit_slurm": "submitit", "ray": "ray"}
LONGEST = 400


def settings_last(arguments: list[str]) -> list[str]:
    """Options before settings: Hydra's parser takes an option between two settings for an error."""
    settings = [argument for argument in arguments if "=" in argument and not argument.startswith("-")]
    return [*(argument for argument in arguments if argument not in settings), *settings]


def unknown_option(arguments: list[str]) -> str | None:
    """The first argument that is neither an option of Hydra's nor a setting, as one line."""
    known, unknown = get_args_parser().parse_known_args(settings_last(arguments))
    if known.experimental_rerun is not None:
        return (
            f"--experimental-rerun {known.experimental_rerun}: would run code from that file; give the settings again"
        )
    for argument in unknown:
        key = argument.lstrip("-").partition("=")[0].replace("-", "_")
        return f"unknown option {argument}: settings are written key=value; is it {_guess(key)}? (see --help)"
    return None


def explain(error: BaseException, overrides: list[str]) -> str | None:
    """One line on an error that comes from the command line or the configuration; None for any other error."""
    missing = missing_launcher(overrides)
    if missing:
        return missing
    if isinstance(error, OverrideParseException):
        return f"cannot read {error.override!r}: settings are written key=value, as in regularizer.lam=0.1"
    if isinstance(error, MissingConfigException) and error.missing_cfg_file and error.options is not None:
        group, _, option = error.missing_cfg_file.rpartition("/")
        return f"{group}={option}: no such option; one of {', '.join(error.options)}"
    if isinstance(error, ConfigCompositionException):
        return _composition(error, overrides)
    if isinstance(error, HydraException | OmegaConfBaseException | ValueError):
        # A job's own errors end as its outcome and never come here.
        return _one_line(error)
    return _of_hydra(error, overrides)


def _of_hydra(error: BaseException, overrides: list[str]) -> str | None:
    """An error without a word of its own, if it may come from a setting of Hydra's."""
    suspects = [override for override in overrides if override.lstrip("+~").startswith("hydra")]
    if not suspects or isinstance(error, OSError):
        return None
    return f"{', '.join(suspects)}: {_one_line(error) or type(error).__name__}"


def _composition(error: ConfigCompositionException, overrides: list[str]) -> str:
    text = str(error)
    key = re.search(r"Could not override '([^']+)'", text)
    if key:
        return _unknown_key(key.group(1), overrides)
    sweep = re.search(r"(?:Ambiguous value for argument|Sweep parameters?) '([^']+)'", text)
    if sweep:
        return f"{sweep.group(1)} is a sweep: add -m to run every value (a list is written [a,b])"
    return _one_line(error)


def _unknown_key(key: str, overrides: list[str]) -> str:
    parent, _, leaf = key.rpartition(".")
    typed = next((override for override in overrides if override.lstrip("+~").startswith(f"{key}=")), key)
    # What is no override is the value of an option, as the folder of --config-dir.
    others = [word for word in overrides if word != typed and ("=" in word or word.startswith("~"))]
    known = _known_keys(parent, others)
    if not known:
        return f"{typed}: no such key"
    paths = [f"{parent}.{name}" if parent else name for name in known]
    near = difflib.get_close_matches(leaf, known, n=1)
    hint = f"did you mean {paths[known.index(near[0])]}? " if near else ""
    return f"{typed}: no such key; {hint}{'allowed' if hint else 'one of'}: {', '.join(paths)}"


def _guess(key: str) -> str:
    """The configuration's key that looks most like `key`, with its path."""
    paths = _paths(_composed([]))
    near = difflib.get_close_matches(key, [path.rpartition(".")[2] for path in paths], n=1, cutoff=0.5)
    matches = [path for path in paths if near and path.rpartition(".")[2] == near[0]]
    return f"{matches[0]}=…" if matches else f"{key}=…"


def _paths(node: DictConfig | None, prefix: str = "") -> list[str]:
    paths: list[str] = []
    for key in map(str, node or []):
        path = f"{prefix}{key}"
        paths.append(path)
        if node is not None and OmegaConf.is_dict(node._get_node(key)):
            paths += _paths(node[key], f"{path}.")
    return paths


def _known_keys(parent: str, overrides: list[str]) -> list[str]:
    """Keys beside the unknown one, with the user's other choices in place where they compose."""
    cfg = _composed(overrides)
    if cfg is None:
        cfg = _composed([])
    node = OmegaConf.select(cfg, parent) if cfg is not None and parent else cfg
    if not isinstance(node, DictConfig):
        return []
    groups = [] if parent else _groups()
    return sorted({str(key) for key in node if not str(key).startswith("_")} | set(groups))


def _groups() -> Iterable[str]:
    root = Path(config_directory())
    return [path.name for path in root.iterdir() if path.is_dir() and any(path.glob("*.yaml"))]


def _composed(overrides: list[str]) -> DictConfig | None:
    GlobalHydra.instance().clear()
    own = get_args_parser().parse_known_args(sys.argv[1:])[0].config_dir
    searched = [f"hydra.searchpath=[file://{Path(own).absolute()}]"] if own else []
    try:
        with initialize_config_dir(str(config_directory()), version_base="1.3"):
            return compose(CONFIG_NAME, [*overrides, *searched])
    except Exception:
        # The other overrides are wrong too, or are a sweep's; the caller does without.
        return None


def missing_launcher(overrides: list[str]) -> str | None:
    """A launcher whose package is not installed, and how to install it."""
    for override in overrides:
        key, _, name = override.partition("=")
        extra = LAUNCHER_PLUGINS.get(name) if key == "hydra/launcher" else None
        if extra and importlib.util.find_spec(f"hydra_plugins.hydra_{extra}_launcher") is None:
            return (
                f"{override} needs an extra package: {Path(sys.executable).name} -m pip install 'cmr-runner[{extra}]'"
            )
    return None


def _one_line(error: BaseException) -> str:
    text = str(error)
    if error.__cause__ is not None and str(error.__cause__) not in text:
        text = f"{text}: {error.__cause__}"
    text = " ".join(text.split())
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
