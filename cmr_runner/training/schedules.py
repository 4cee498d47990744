"""Learning rates over the steps of a run, by torch.optim.lr_scheduler. Each is made of (optimizer, total_steps)."""

from math import cos, pi

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, OneCycleLR

from cmr_runner.checks import number


def constant(optimizer: Optimizer, total_steps: int) -> LRScheduler:
    return LambdaLR(optimizer, lambda step: 1.0)


def cosine(optimizer: Optimizer, total_steps: int, *, warmup: float = 0.05, floor: float = 0.0) -> LRScheduler:
    """Linear up to the optimiser's learning rate, then half a cosine down to `floor` times it.

    warmup: the part of all steps that the rise takes, in [0, 1). floor: in [0, 1].
    """
    number("warmup", warmup, least=0, below=1)
    number("floor", floor, least=0, most=1)
    rise = round(warmup * total_steps)

    def factor(step: int) -> float:
        if step < rise:
            return (step + 1) / (rise + 1)
        return floor + (1 - floor) * (1 + cos(pi * (step - rise) / max(total_steps - rise, 1))) / 2

    return LambdaLR(optimizer, factor)


def one_cycle(
    optimizer: Optimizer,
    total_steps: int,
    *,
    warmup: float = 0.3,
    div_factor: float = 25.0,
    final_div_factor: float = 1e4,
) -> LRScheduler:
    """From the optimiser's learning rate ÷ div_factor up to it, then down to the start ÷ final_div_factor.

    Momentum stays as it is, so that every optimiser has the same schedule. warmup: the part of all steps that the rise
    takes, in (0, 1).
    """
    number("warmup", warmup, above=0, below=1)
    number("div_factor", div_factor, least=1)
    number("final_div_factor", final_div_factor, least=1)
    return OneCycleLR(
        optimizer,
        max_lr=[group["lr"] for group in optimizer.param_groups],
        total_steps=total_steps,
        pct_start=warmup,
        cycle_momentum=False,
        div_factor=div_factor,
        final_div_factor=final_div_factor,
    )
