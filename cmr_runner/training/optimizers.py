"""Optimisers are torch's own classes; here is what torch lacks, and how either kind is made of a model."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn, optim

from cmr_runner.checks import number, require

# Ranges by the names that torch's optimisers share. torch itself checks some of them, others not at all.
RANGES: dict[str, dict[str, Any]] = {
    "lr": {"above": 0},
    "adamw_lr": {"above": 0},
    "eps": {"least": 0},
    "momentum": {"least": 0, "below": 1},
    "alpha": {"least": 0, "below": 1},
    "weight_decay": {"least": 0},
}


def check_options(options: Mapping[str, Any]) -> None:
    """Raise ArgumentError for an option outside its range, whichever optimiser it is for."""
    for name, bounds in RANGES.items():
        if name in options:
            number(name, options[name], **bounds)
    if "betas" in options:
        betas = options["betas"]
        two = isinstance(betas, list | tuple) and len(betas) == 2
        require("betas", betas, two and all(map(_is_fraction, betas)), "two numbers in [0, 1)")


def _is_fraction(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1


def optimizer_of(factory: partial[optim.Optimizer], model: nn.Module) -> optim.Optimizer:
    """`factory` called with the model if that is its first argument, else with the parameters that are trained."""
    target = factory.func
    if next(iter(inspect.signature(target).parameters)) == "model":
        return factory(model)
    parameters = trained(model)
    return factory(parameters, **(_kernels(target, parameters) | factory.keywords))


def trained(model: nn.Module) -> list[nn.Parameter]:
    return [p for p in model.parameters() if p.requires_grad]


def _kernels(target: Callable[..., Any], parameters: Sequence[nn.Parameter]) -> dict[str, bool]:
    """torch's fused kernel where there is one, else its loop over all tensors at once: fewer passes over memory."""
    known = inspect.signature(target).parameters
    if "fused" in known and _can_fuse(parameters):
        return {"fused": True}
    return {"foreach": True} if "foreach" in known and "fused" not in known else {}


def _can_fuse(parameters: Sequence[nn.Parameter]) -> bool:
    return all(p.device.type in ("cpu", "cuda", "mps") and torch.is_floating_point(p) for p in parameters)


def muon(
    model: nn.Module,
    *,
    lr: float = 0.02,
    momentum: float = 0.95,
    weight_decay: float = 0.0,
    adamw_lr: float = 1e-3,
    betas: Sequence[float] = (0.9, 0.999),
) -> Split:
    """torch's Muon for the weights that are matrices, AdamW for the rest: biases, vectors, convolutions, embeddings."""
    if not hasattr(optim, "Muon"):
        raise ValueError(f"muon needs torch >= 2.9, this is {torch.__version__}")
    check_options({"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "adamw_lr": adamw_lr, "betas": betas})
    embeddings = {id(p) for m in model.modules() if isinstance(m, nn.Embedding) for p in m.parameters(recurse=False)}
    matrices = [p for p in trained(model) if p.ndim == 2 and id(p) not in embeddings]
    chosen = {id(p) for p in matrices}
    rest = [p for p in trained(model) if id(p) not in chosen]
    parts: list[optim.Optimizer] = []
    if matrices:
        parts.append(optim.Muon(matrices, lr=lr, momentum=momentum, weight_decay=weight_decay))
    if rest:
        options = {"lr": adamw_lr, "betas": (betas[0], betas[1]), "weight_decay": weight_decay}
        parts.append(optim.AdamW(rest, **options, fused=_can_fuse(rest)))  # type: ignore[arg-type]
    return Split(parts)


class Split(optim.Optimizer):
    """Several optimisers, each with its own parameters, as one."""

    def __init__(self, parts: Sequence[optim.Optimizer]) -> None:
        self.parts = list(parts)
        super().__init__([p for part in parts for group in part.param_groups for p in group["params"]], {})
        self.param_groups = [group for part in parts for group in part.param_groups]  # for schedulers: the real ones

    def step(self, closure: Any = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for part in self.parts:
            part.step()
        return loss

    def state_dict(self) -> dict[str, Any]:
        return {"parts": [part.state_dict() for part in self.parts]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for part, state in zip(self.parts, state_dict["parts"], strict=True):
            part.load_state_dict(state)
        self.param_groups = [group for part in self.parts for group in part.param_groups]
