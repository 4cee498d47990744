"""Weights from a file."""

import pickle
import zipfile
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor, nn


def checkpoint_(model: nn.Module, generator: Generator, *, path: str) -> None:
    """The weights of a run's model.pt or checkpoint.pt, or of any saved state_dict. Draws nothing."""
    state = read_state_dict(path, key="init.path")
    own = model.state_dict()
    missing, unexpected = sorted(own.keys() - state.keys()), sorted(state.keys() - own.keys())
    if missing or unexpected:
        raise ValueError(
            f"init.path={path} does not fit the model: missing {_some(missing)}; unexpected {_some(unexpected)}"
        )
    for name, tensor in state.items():
        saved, needed = tuple(tensor.shape), tuple(own[name].shape)
        if saved != needed:
            raise ValueError(f"init.path={path} does not fit the model: {name} is {saved}, not {needed}")
    model.load_state_dict(state)


def read_state_dict(path: str | Path, *, key: str) -> dict[str, Tensor]:
    """The state_dict in a file, on the CPU, loaded without running any code from it. Errors name `key`."""
    file = Path(path).expanduser()
    try:
        content = torch.load(file, map_location="cpu", weights_only=True)
    except OSError as error:
        raise ValueError(f"{key}={path}: {error.strerror or error}") from None
    except (RuntimeError, EOFError, ValueError, KeyError, pickle.UnpicklingError, zipfile.BadZipFile):
        raise ValueError(f"{key}={path}: not a file of tensors that torch.load(weights_only=True) reads") from None
    state = _model_part(content)
    if not isinstance(state, dict) or not state or not all(isinstance(value, Tensor) for value in state.values()):
        raise ValueError(f"{key}={path}: holds no state_dict (names and tensors)")
    return state


def _model_part(content: Any) -> Any:
    """The weights within what was saved: a run's checkpoint.pt wraps them, other tools use the names below."""
    for key in ("state", "trainer", "model", "state_dict"):
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
    return content


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:3]) or "nothing"
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown
