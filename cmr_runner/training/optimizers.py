"""torch.optim's optimisers, made of a model. Fused kernels where torch has them: same update, fewer passes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn, optim


def adam(model: nn.Module, *, lr: float = 1e-3, betas: Sequence[float] = (0.9, 0.999), eps: float = 1e-8) -> optim.Adam:
    return optim.Adam(
        _trained(model), lr=_positive("lr", lr), betas=_pair(betas), eps=_not_negative("eps", eps), fused=_fused(model)
    )


def adamw(
    model: nn.Module,
    *,
    lr: float = 1e-3,
    betas: Sequence[float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.01,
) -> optim.AdamW:
    return optim.AdamW(
        _trained(model),
        lr=_positive("lr", lr),
        betas=_pair(betas),
        eps=_not_negative("eps", eps),
        weight_decay=_not_negative("weight_decay", weight_decay),
        fused=_fused(model),
    )


def sgd(model: nn.Module, *, lr: float = 0.1, momentum: float = 0.9, nesterov: bool = False) -> optim.SGD:
    return optim.SGD(
        _trained(model),
        lr=_positive("lr", lr),
        momentum=_not_negative("momentum", momentum),
        nesterov=nesterov,
        fused=_fused(model),
    )


def rmsprop(
    model: nn.Module, *, lr: float = 1e-3, alpha: float = 0.99, eps: float = 1e-8, momentum: float = 0.0
) -> optim.RMSprop:
    return optim.RMSprop(
        _trained(model),
        lr=_positive("lr", lr),
        alpha=alpha,
        eps=_not_negative("eps", eps),
        momentum=_not_negative("momentum", momentum),
        foreach=True,
    )


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
        raise ValueError(f"optimizer=muon needs torch >= 2.9, this is {torch.__version__}")
    embeddings = {id(p) for m in model.modules() if isinstance(m, nn.Embedding) for p in m.parameters(recurse=False)}
    trained = _trained(model)
    matrices = [p for p in trained if p.ndim == 2 and id(p) not in embeddings]
    chosen = {id(p) for p in matrices}
    rest = [p for p in trained if id(p) not in chosen]
    parts: list[optim.Optimizer] = []
    if matrices:
        parts.append(
            optim.Muon(
                matrices,
                lr=_positive("lr", lr),
                momentum=_not_negative("momentum", momentum),
                weight_decay=_not_negative("weight_decay", weight_decay),
            )
        )
    if rest:
        parts.append(
            optim.AdamW(
                rest,
                lr=_positive("adamw_lr", adamw_lr),
                betas=_pair(betas),
                weight_decay=weight_decay,
                fused=_fused(model),
            )
        )
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


def _trained(model: nn.Module) -> list[nn.Parameter]:
    return [p for p in model.parameters() if p.requires_grad]


def _positive(key: str, value: float) -> float:
    if not 0 < value < math.inf:
        raise ValueError(f"optimizer.{key} must be > 0 and finite, got {value}")
    return value


def _not_negative(key: str, value: float) -> float:
    if not value >= 0:
        raise ValueError(f"optimizer.{key} must be >= 0, got {value}")
    return value


def _pair(betas: Sequence[float]) -> tuple[float, float]:
    if not isinstance(betas, list | tuple) or len(betas) != 2 or not all(map(_is_fraction, betas)):
        raise ValueError(f"optimizer.betas must be two numbers in [0, 1), got {betas!r}")
    return betas[0], betas[1]


def _is_fraction(value: object) -> bool:
    return isinstance(value, int | float) and 0 <= value < 1


def _fused(model: nn.Module) -> bool:
    return all(p.device.type in ("cpu", "cuda", "mps") and torch.is_floating_point(p) for p in model.parameters())
