"""Learning rates over a run: what they are at each step, for every group of an optimiser."""

import math

import pytest
import torch
from torch import optim
from torch.optim.lr_scheduler import LRScheduler

from cmr_runner.checks import ArgumentError
from cmr_runner.training.schedules import constant, cosine, one_cycle


def made(schedule, steps: int, **keys: float) -> tuple[optim.Optimizer, LRScheduler]:  # type: ignore[no-untyped-def]
    a, b = torch.nn.Parameter(torch.zeros(1)), torch.nn.Parameter(torch.zeros(1))
    optimizer = optim.SGD([{"params": [a], "lr": 0.5}, {"params": [b], "lr": 0.1}])
    return optimizer, schedule(optimizer, steps, **keys)


def rates(optimizer: optim.Optimizer, scheduler: LRScheduler, steps: int) -> list[list[float]]:
    found = []
    for _ in range(steps):
        found.append([group["lr"] for group in optimizer.param_groups])
        optimizer.step()
        scheduler.step()
    return found


def test_constant_leaves_the_rates_bit_for_bit() -> None:
    assert rates(*made(constant, 5), 5) == [[0.5, 0.1]] * 5


def test_cosine_rises_linearly_and_falls_by_half_a_cosine() -> None:
    found = rates(*made(cosine, 20, warmup=0.2, floor=0.1), 20)
    factors = [a / 0.5 for a, _ in found]
    assert factors[:4] == pytest.approx([0.2, 0.4, 0.6, 0.8])
    assert factors[4:] == pytest.approx([0.1 + 0.9 * (1 + math.cos(math.pi * t / 16)) / 2 for t in range(16)])
    assert [b / 0.1 for _, b in found] == pytest.approx(factors)


def test_one_cycle_is_torchs_with_each_groups_own_rate() -> None:
    found = rates(*made(one_cycle, 10, warmup=0.4, div_factor=10, final_div_factor=100), 10)
    theirs_optimizer, _ = made(constant, 10)
    theirs = optim.lr_scheduler.OneCycleLR(
        theirs_optimizer,
        [0.5, 0.1],
        total_steps=10,
        pct_start=0.4,
        cycle_momentum=False,
        div_factor=10,
        final_div_factor=100,
    )
    assert found == rates(theirs_optimizer, theirs, 10)
    assert max(a for a, _ in found) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("schedule", "keys", "message"),
    [
        (cosine, {"warmup": 1}, r"warmup must be in \[0, 1\), got 1"),
        (cosine, {"floor": 2}, r"floor must be in \[0, 1\], got 2"),
        (one_cycle, {"warmup": 0}, r"warmup must be in \(0, 1\), got 0"),
        (one_cycle, {"div_factor": 0}, "div_factor must be >= 1, got 0"),
    ],
)
def test_senseless_settings_are_refused(schedule, keys: dict[str, float], message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ArgumentError, match=f"^{message}"):
        made(schedule, 5, **keys)
