import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn, optim

from cmr_runner.models import CNN
from cmr_runner.training import optimizers

ALL = ["adam", "adamw", "sgd", "rmsprop", "muon"]
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
    make: Callable[..., optim.Optimizer] = getattr(optimizers, name)
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
    groups = optimizers.adam(model).param_groups
    assert sum(len(group["params"]) for group in groups) == 4


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
    ("name", "keys", "message"),
    [
        ("adam", {"lr": 0}, "optimizer.lr must be > 0 and finite, got 0"),
        ("sgd", {"lr": float("nan")}, "optimizer.lr must be > 0 and finite, got nan"),
        ("sgd", {"momentum": -1}, "optimizer.momentum must be >= 0, got -1"),
        ("adamw", {"weight_decay": -1}, "optimizer.weight_decay must be >= 0, got -1"),
        ("adam", {"betas": [0.9]}, r"optimizer.betas must be two numbers in \[0, 1\), got \[0.9\]"),
        ("muon", {"adamw_lr": 0}, "optimizer.adamw_lr must be > 0 and finite, got 0"),
    ],
)
def test_senseless_settings_are_refused(name: str, keys: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        getattr(optimizers, name)(network(), **keys)
