"""From a composed configuration to a trainer: every `_target_` is built here, and its mistakes get their key's name."""

import inspect
import random
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from hydra.errors import InstantiationException
from hydra.utils import get_object, instantiate
from omegaconf import DictConfig

from cmr_runner.checks import ArgumentError
from cmr_runner.commands.settings import Mistake, Settings
from cmr_runner.regularizers.ranks import Ranks
from cmr_runner.spectral.engines import keep_freed_memory, set_spectral_threads
from cmr_runner.training.loop import Trainer, steps_per_epoch
from cmr_runner.training.seeding import generator

NUMBERS = (int, float, "int", "float")  # annotations, as objects and as text


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


def build_trainer(cfg: DictConfig, settings: Settings, device: str, ranks: Ranks | None = None) -> Trainer:
    torch.set_num_threads(settings.threads)
    set_spectral_threads(settings.spectral_threads)
    keep_freed_memory()
    seed_everything(settings.seed)
    seed = settings.seed
    data = build(cfg, "dataset").to(device)
    model = build(cfg, "model", input_shape=data.input_shape, num_classes=data.num_classes)
    build(cfg, "init", model, generator(seed, "init"))
    model.to(device)
    steps = steps_per_epoch(len(data.train_y), _batch_size(cfg))
    regularizer = build(cfg, "regularizer", model, steps_per_epoch=steps, seed=seed)
    optimizer = build(cfg, "optimizer", model)
    parts = {"model": model, "data": data, "regularizer": regularizer, "optimizer": optimizer}
    return build(cfg, "trainer", **parts, seed=seed, ranks=ranks)


def _batch_size(cfg: DictConfig) -> int:
    size = cfg.trainer.get("batch_size")
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise Mistake(f"trainer.batch_size must be an integer >= 1, got {size!r}")
    return size


def build(cfg: DictConfig, group: str, *arguments: Any, **named: Any) -> Any:
    """What `group`'s YAML describes: its target called with its keys, and with `arguments` where it is partial."""
    node = cfg[group]
    try:
        _check_keys(group, node)
        made = instantiate(node, _convert_="all")
        return made(*arguments, **named) if node.get("_partial_") else made
    except Exception as error:
        cause = error.__cause__ if isinstance(error, InstantiationException) and error.__cause__ else error
        if isinstance(cause, Mistake) or not isinstance(cause, ValueError | TypeError | InstantiationException):
            raise cause from None
        raise Mistake(_named(_place(group, error), cause)) from error


def _check_keys(group: str, node: DictConfig) -> None:
    """Name a key that the target does not take; Python's own message would name neither the group nor the others."""
    parameters = _parameters(get_object(node["_target_"]))
    keys = [str(key) for key in node if not str(key).startswith("_")]
    for key in keys:
        if key not in parameters:
            known = ", ".join(f"{group}.{name}" for name in keys if name in parameters)
            raise Mistake(f"{group}.{key}={node[key]}: no such key; {node['_target_']} is given {known or 'no keys'}")
        if parameters[key].annotation in NUMBERS and isinstance(node[key], str | bool):
            raise Mistake(f"{group}.{key} must be a number, got {node[key]!r}")


def _parameters(target: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """What a target takes by name. A class that hands its **options on takes those of its parents too."""
    functions = (
        [vars(cls)["__init__"] for cls in target.__mro__ if "__init__" in vars(cls)]
        if inspect.isclass(target)
        else [target]
    )
    found: dict[str, inspect.Parameter] = {}
    for function in functions:
        parameters = inspect.signature(function).parameters
        found = {name: p for name, p in parameters.items() if p.kind is not p.VAR_KEYWORD} | found
        if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
            break
    return found


def _place(group: str, error: BaseException) -> str:
    """The node that failed: the group, or one inside it (`regularizer.layers`), which Hydra names."""
    key = (
        re.search(r"^full_key: (\S+)$", str(error), re.MULTILINE) if isinstance(error, InstantiationException) else None
    )
    return key[1] if key else group


def _named(group: str, error: BaseException) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, ArgumentError):
        return f"{group}.{text}"
    missing = re.search(r"missing \d+ required .*arguments?: '(\w+)'", text)
    if missing:
        return f"{group}.{missing[1]} must be given: {group}.{missing[1]}=…"
    return text if text.startswith((f"{group}.", f"{group}=")) else f"{group}: {text}"
