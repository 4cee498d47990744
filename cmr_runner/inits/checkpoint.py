"""Weights from a file."""

import io
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Generator, Tensor, nn

from cmr_runner.checks import ArgumentError
from cmr_runner.digests import Damaged, check_seal, is_sealed


def checkpoint_(model: nn.Module, generator: Generator, *, path: str) -> None:
    """The weights of a run's model.pt or checkpoint.pt, or of any saved state_dict. Draws nothing."""
    state = read_state_dict(path)
    own = model.state_dict()
    missing, unexpected = sorted(own.keys() - state.keys()), sorted(state.keys() - own.keys())
    if missing or unexpected:
        _refuse(path, f"does not fit the model: missing {_some(missing)}; unexpected {_some(unexpected)}")
    for name, tensor in state.items():
        saved, needed = tuple(tensor.shape), tuple(own[name].shape)
        if saved != needed:
            _refuse(path, f"does not fit the model: {name} is {saved}, not {needed}")
        if tensor.is_complex() or tensor.is_floating_point() != own[name].is_floating_point():
            _refuse(path, f"does not fit the model: {name} is {tensor.dtype}, not {own[name].dtype}")
        if not torch.isfinite(tensor).all():
            _refuse(path, f"{name} holds values that are not finite")
    model.load_state_dict(state)


def read_state_dict(path: str | Path) -> dict[str, Tensor]:
    """The state_dict in a file, on the CPU, loaded without running any code from it."""
    file = Path(path).expanduser()
    try:
        blob = file.read_bytes()
        if is_sealed(blob):
            check_seal(blob)
        content = torch.load(io.BytesIO(blob), map_location="cpu", weights_only=True)
    except Damaged as error:
        _refuse(path, f"damaged, {error}")
    except OSError as error:
        _refuse(path, str(error.strerror or error))
    except Exception:  # whatever a damaged file raises
        _refuse(path, "not a file of tensors that torch.load(weights_only=True) reads")
    state = _model_part(content)
    if not isinstance(state, dict) or not state or not all(isinstance(value, Tensor) for value in state.values()):
        _refuse(path, "holds no state_dict (names and tensors)")
    return state


def _refuse(path: str | Path, reason: str) -> NoReturn:
    raise ArgumentError("path", f"path={path}: {reason}") from None


def _model_part(content: Any) -> Any:
    """The weights within what was saved: a run's checkpoint.pt wraps them, other tools use the names below."""
    for key in ("state", "trainer", "model", "state_dict"):
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
    return content


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:3]) or "nothing"
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown
