"""torch.optim's optimisers, made of a model. Fused kernels where torch has them: same update, fewer passes."""

import torch
from torch import nn, optim


def adam(
    model: nn.Module, *, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8
) -> optim.Adam:
    return optim.Adam(
        model.parameters(), lr=_positive("lr", lr), betas=(betas[0], betas[1]), eps=eps, fused=_fused(model)
    )


def sgd(model: nn.Module, *, lr: float = 0.1, momentum: float = 0.9, nesterov: bool = False) -> optim.SGD:
    return optim.SGD(
        model.parameters(), lr=_positive("lr", lr), momentum=momentum, nesterov=nesterov, fused=_fused(model)
    )


def _positive(key: str, value: float) -> float:
    if not value > 0:
        raise ValueError(f"optimizer.{key} must be > 0, got {value}")
    return value


def _fused(model: nn.Module) -> bool:
    return all(p.device.type in ("cpu", "cuda", "mps") and torch.is_floating_point(p) for p in model.parameters())
