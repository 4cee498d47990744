"""From a composed configuration to a trainer: every `_target_` is built here, and its mistakes get their key's name."""

import contextlib
import functools
import logging
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf
from torch import nn

from cmr_runner.checks import ArgumentError, integer
from cmr_runner.commands.settings import GROUPS, Mistake, Settings
from cmr_runner.commands.signatures import check_arguments
from cmr_runner.data.dataset import Dataset
from cmr_runner.distributed import Ranks
from cmr_runner.spectral.engines import set_spectral_threads
from cmr_runner.training.loop import Trainer, steps_per_epoch
from cmr_runner.training.memory import keep_freed_memory
from cmr_runner.training.optimizers import check_options, optimizer_of
from cmr_runner.training.seeding import generator

# What the runner itself passes to a group's target, where its YAML says `_partial_: true`.
GIVEN: dict[str, tuple[str, ...]] = {
    "dataset": ("seed",),
    "model": ("input_shape", "num_classes"),
    "init": ("model", "generator"),
    "regularizer": ("model", "steps_per_epoch", "seed"),
    "optimizer": ("params", "model"),
    "schedule": ("optimizer", "total_steps"),
    "trainer": ("model", "data", "regularizer", "optimizer", "schedule", "seed", "ranks"),
}

PLACES = "it may be installed, or lie in PYTHONPATH, in --config-dir or beside it, or in the working directory"

logging.getLogger("hydra.utils").disabled = True  # get_object prints over several lines what it also raises


def resolve_device(requested: str) -> str:
    """`auto` is CUDA where there is one, else the CPU; mps has no float64, so it is taken only when asked for."""
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if requested == "auto":
        return "cuda" if available["cuda"] else "cpu"
    if not available[requested]:
        raise Mistake(f"device={requested}: this machine has none; allowed here: auto, {', '.join(_true(available))}")
    return requested


def _true(flags: dict[str, bool]) -> list[str]:
    return [name for name, flag in flags.items() if flag]


def seed_everything(seed: int) -> None:
    """Fresh global generators, so that nothing of an earlier job of this process is left in them."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 (the global one is what a library may use)
    torch.manual_seed(seed)


def find_modules(node: DictConfig) -> None:
    """Let `_target_`s name modules in --config-dir, beside it, or where the command was started; installed packages and
    PYTHONPATH come first. `node` is Hydra's."""
    given = [Path(source.path) for source in node.runtime.config_sources if source.provider == "command-line"]
    folders = [*given, *(folder.parent for folder in given), Path(node.runtime.cwd)]
    sys.path += [text for text in dict.fromkeys(map(str, folders)) if text not in sys.path]


def build_trainer(cfg: DictConfig, settings: Settings, device: str, ranks: Ranks | None = None) -> Trainer:
    check_groups(cfg)
    torch.set_num_threads(settings.threads)
    set_spectral_threads(settings.spectral_threads)
    keep_freed_memory()
    seed_everything(settings.seed)
    seed = settings.seed
    data = build(cfg, "dataset", seed=seed).to(device)
    model = build(cfg, "model", input_shape=data.input_shape, num_classes=data.num_classes)
    check_fit(model, data)
    build(cfg, "init", model, generator(seed, "init"))
    model.to(device)
    steps = steps_per_epoch(len(data.train_y), cfg.trainer.batch_size)
    regularizer = build(cfg, "regularizer", model, steps_per_epoch=steps, seed=seed)
    with mistakes_of("optimizer"):
        optimizer = optimizer_of(build(cfg, "optimizer"), model)
    schedule = build(cfg, "schedule", optimizer, steps * cfg.trainer.epochs)
    parts = {"model": model, "data": data, "regularizer": regularizer, "optimizer": optimizer, "schedule": schedule}
    return build(cfg, "trainer", **parts, seed=seed, ranks=ranks)


def check_fit(model: nn.Module, data: Dataset) -> None:
    """Whether the model makes of the data set's examples the logits that its labels need."""
    x, y = data.train_x[:1].cpu(), data.train_y[:1]
    needed = (*y.shape, data.num_classes)
    model.eval()
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            made = tuple(model(x).shape)
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        reason = " ".join(str(error).split())[:200]
        raise Mistake(f"model: it cannot take {data.name}, {x.dtype} {data.input_shape}: {reason}") from error
    finally:
        model.train()
    if made != needed:
        raise Mistake(f"model: it makes {made} of one example of {data.name}, which needs {needed}")


def check_groups(cfg: DictConfig) -> None:
    """Every key and value of every group, before the first of them is built."""
    for group in GROUPS:
        node = _plain(cfg, group)
        check_node(group, node, GIVEN[group] if node.get("_partial_") else ())
    with mistakes_of("optimizer"):
        check_options(_options(_plain(cfg, "optimizer")))
    with mistakes_of("trainer"):
        for key in ("batch_size", "epochs"):  # needed before the trainer is built
            integer(key, cfg.trainer.get(key), least=1)


def check_node(path: str, node: Mapping[str, Any], given: tuple[str, ...] = ()) -> None:
    options = _options(node)
    with mistakes_of(path):
        check_arguments(target_of(path, node), options, given)
    for key, value in options.items():
        if isinstance(value, Mapping) and "_target_" in value:
            check_node(f"{path}.{key}", value)


def build(cfg: DictConfig, group: str, *arguments: Any, **named: Any) -> Any:
    """What `group`'s YAML describes: its target called with its keys, and with `arguments` where it is partial."""
    made = _made(group, _plain(cfg, group))
    if not isinstance(made, functools.partial) or not (arguments or named):
        return made
    with mistakes_of(group):
        return made(*arguments, **named)


def _made(path: str, node: Mapping[str, Any]) -> Any:
    """The object of a node, or a functools.partial of it; nodes among its values first."""
    options = {
        key: _made(f"{path}.{key}", value) if isinstance(value, Mapping) and "_target_" in value else value
        for key, value in _options(node).items()
    }
    target = target_of(path, node)
    if node.get("_partial_"):
        return functools.partial(target, **options)
    with mistakes_of(path):
        return target(**options)


def _plain(cfg: DictConfig, group: str) -> dict[str, Any]:
    node = cfg.get(group)
    if not isinstance(node, DictConfig) or "_target_" not in node:
        raise Mistake(f"{group} must be one of its options, as {group}=…, got {node!r}")
    return OmegaConf.to_container(node, resolve=True)  # type: ignore[return-value]


def _options(node: Mapping[str, Any]) -> dict[str, Any]:
    return {str(key): value for key, value in node.items() if not str(key).startswith("_")}


def target_of(path: str, node: Mapping[str, Any]) -> Callable[..., Any]:
    name = node["_target_"]
    try:
        found = get_object(name)
    except Exception as error:  # whatever importing a user's module raises
        raise Mistake(f"{path}._target_={name} cannot be imported: {_reason(error)}") from error
    if not callable(found):
        raise Mistake(f"{path}._target_={name} must be a class or a function")
    return found


def _reason(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
    return f"{reason}; {PLACES}" if isinstance(error, ModuleNotFoundError) else reason


@contextlib.contextmanager
def mistakes_of(path: str) -> Iterator[None]:
    """Errors in what a user set, raised again as a Mistake with the group's name before the bare argument's."""
    try:
        yield
    except Mistake:
        raise
    except ArgumentError as error:
        raise Mistake(f"{path}.{error}") from error
    except (ValueError, TypeError, OverflowError, MemoryError) as error:
        raise Mistake(f"{path}: {' '.join(str(error).split())}") from error
