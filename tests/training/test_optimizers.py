import copy
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf
from torch import Tensor, nn, optim

from cmr_runner.checks import ArgumentError
from cmr_runner.models import CNN
from cmr_runner.training import optimizers

CONF = Path(__file__).parents[2] / "conf"
FACTORIES: dict[str, partial[optim.Optimizer]] = {
    "adam": partial(optim.Adam),
    "adamw": partial(optim.AdamW),
    "sgd": partial(optim.SGD, momentum=0.9),
    "rmsprop": partial(optim.RMSprop),
    "muon": partial(optimizers.muon),
}
ALL = list(FACTORIES)
MAKE: dict[str, Callable[[nn.Module], optim.Optimizer]] = {
    name: partial(optimizers.optimizer_of, factory) for name, factory in FACTORIES.items()
}
X = torch.randn(8, 1, 8, 8, generator=torch.Generator().manual_seed(0))


def network() -> CNN:
    torch.manual_seed(0)
    return CNN((1, 8, 8), 4, channels=[4, 6])


def train(model: nn.Module, optimizer: optim.Optimizer, steps: int) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        model(X).square().mean().backward()
        optimizer.step()


def values(model: nn.Module) -> list[Tensor]:
    return [p.detach().clone() for p in model.parameters()]


@pytest.mark.parametrize("name", ALL)
def test_every_parameter_moves_and_the_state_restores_bit_for_bit(name: str) -> None:
    make = MAKE[name]
    straight = network()
    start = values(straight)
    train(straight, make(straight), 5)
    assert all(not torch.equal(a, b) for a, b in zip(start, straight.parameters(), strict=True))

    first = network()
    optimizer = make(first)
    train(first, optimizer, 3)
    second = network()
    second.load_state_dict(first.state_dict())
    resumed = make(second)
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    train(second, resumed, 2)
    assert all(torch.equal(a, b) for a, b in zip(straight.parameters(), second.parameters(), strict=True))


def test_frozen_parameters_are_left_out() -> None:
    model = network()
    model.head.requires_grad_(False)
    groups = MAKE["adam"](model).param_groups
    assert sum(len(group["params"]) for group in groups) == 4


@pytest.mark.parametrize(("name", "kernel"), [("adam", "fused"), ("sgd", "fused"), ("rmsprop", "foreach")])
def test_torchs_fastest_kernel_is_chosen_unless_the_user_says_otherwise(name: str, kernel: str) -> None:
    assert MAKE[name](network()).defaults[kernel] is True
    slow = optimizers.optimizer_of(partial(FACTORIES[name], **{kernel: False}), network())
    assert slow.defaults[kernel] is False


def test_muon_takes_matrices_and_adamw_the_rest() -> None:
    model = nn.Sequential(nn.Embedding(5, 6), nn.Linear(6, 4), nn.LayerNorm(4))
    muon, adamw = optimizers.muon(model).parts
    assert isinstance(muon, optim.Muon)
    assert isinstance(adamw, optim.AdamW)
    assert [p.shape for p in muon.param_groups[0]["params"]] == [(4, 6)]
    assert {id(p) for p in adamw.param_groups[0]["params"]} == {
        id(p) for p in (model[0].weight, model[1].bias, model[2].weight, model[2].bias)
    }


def test_muon_step_is_torchs_own_on_the_matrices() -> None:
    ours, theirs = nn.Linear(6, 4, bias=False), nn.Linear(6, 4, bias=False)
    theirs.load_state_dict(ours.state_dict())
    X = torch.randn(8, 6)
    split, muon = optimizers.muon(ours), optim.Muon(theirs.parameters(), lr=0.02, momentum=0.95, weight_decay=0.0)
    for model, optimizer in ((ours, split), (theirs, muon)):
        model(X).square().sum().backward()
        optimizer.step()
    assert torch.equal(ours.weight, theirs.weight)


def test_a_schedulers_change_of_lr_reaches_the_parts_after_a_restore() -> None:
    split = optimizers.muon(network())
    split.load_state_dict(copy.deepcopy(split.state_dict()))
    for group in split.param_groups:
        group["lr"] = 0.5
    assert [part.param_groups[0]["lr"] for part in split.parts] == [0.5, 0.5]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"lr": 0}, "lr must be > 0, got 0"),
        ({"lr": float("nan")}, "lr must be a finite number > 0, got nan"),
        ({"lr": None}, "lr must be a number > 0, got None"),
        ({"momentum": -1}, r"momentum must be in \[0, 1\), got -1"),
        ({"momentum": 1e9}, r"momentum must be in \[0, 1\), got 1000000000.0"),
        ({"weight_decay": -1}, "weight_decay must be >= 0, got -1"),
        ({"betas": [0.9]}, r"betas must be two numbers in \[0, 1\), got \[0.9\]"),
        ({"adamw_lr": 0}, "adamw_lr must be > 0, got 0"),
    ],
)
def test_senseless_settings_are_refused(keys: dict[str, object], message: str) -> None:
    with pytest.raises(ArgumentError, match=f"^{message}"):
        optimizers.check_options(keys)
    if keys.keys() <= {"lr", "momentum", "weight_decay", "adamw_lr", "betas"}:
        with pytest.raises(ArgumentError, match=f"^{message}"):
            optimizers.muon(network(), **keys)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ALL)
def test_every_number_of_a_yaml_has_a_range(name: str) -> None:
    yaml = OmegaConf.load(CONF / "optimizer" / f"{name}.yaml")
    numbers = {
        str(key) for key, value in yaml.items() if isinstance(value, int | float) and not isinstance(value, bool)
    }
    assert numbers <= set(optimizers.RANGES)
