"""cmr.attach(optimizer): plain optimizer.step() does it."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from cmr_runner import CMR
from cmr_runner.checks import ArgumentError
from tests.regularizers.test_drop_in import X, Y, network


def weights(model: nn.Module) -> list[torch.Tensor]:
    return [p.detach().clone() for p in model.parameters()]


def steps(model: nn.Module, optimizer: torch.optim.Optimizer, between: object = None, count: int = 3) -> None:
    for _ in range(count):
        optimizer.zero_grad()
        cross_entropy(model(X), Y).backward()
        if callable(between):
            between()
        optimizer.step()


@pytest.mark.parametrize("clip_norm", [None, 0.05])
def test_attached_steps_are_those_of_the_plain_loop(clip_norm: float | None) -> None:
    plain, attached = network(), network()
    cmr = CMR(plain, lam=10.0)

    def by_hand() -> None:
        cmr.add_gradients()
        if clip_norm:
            nn.utils.clip_grad_norm_(plain.parameters(), clip_norm)

    steps(plain, torch.optim.Adam(plain.parameters()), by_hand)
    optimizer = torch.optim.Adam(attached.parameters())
    other = CMR(attached, lam=10.0)
    attachment = other.attach(optimizer, clip_norm=clip_norm)
    steps(attached, optimizer)
    assert all(torch.equal(a, b) for a, b in zip(weights(plain), weights(attached), strict=True))
    attachment.remove()
    steps(attached, optimizer)
    assert other.step == 3


def test_nothing_is_left_in_the_optimisers_state() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = optimizer.state_dict()
    CMR(model).attach(optimizer)
    assert optimizer.state_dict() == before


def test_a_grad_scaler_is_met_unscaled_and_a_fused_optimiser_refused() -> None:
    plain, scaled = network(), network()
    cmr = CMR(plain, lam=10.0)
    steps(plain, torch.optim.SGD(plain.parameters(), lr=0.1), cmr.add_gradients, count=1)

    optimizer = torch.optim.SGD(scaled.parameters(), lr=0.1)
    CMR(scaled, lam=10.0).attach(optimizer)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    scaler.scale(cross_entropy(scaled(X), Y)).backward()
    scaler.step(optimizer)
    for a, b in zip(weights(plain), weights(scaled), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)

    fused = torch.optim.SGD(scaled.parameters(), lr=0.1, fused=True)
    cmr = CMR(scaled, lam=10.0)
    cmr.attach(fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    scaler.scale(cross_entropy(scaled(X), Y)).backward()
    with pytest.raises(RuntimeError, match=r"fused optimiser scaled until its kernel.* scaler.unscale_\(optimizer\)"):
        scaler.step(fused)
    assert cmr.step == 0

    fused = torch.optim.SGD(scaled.parameters(), lr=0.1, fused=True)
    cmr.attach(fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    scaler.scale(cross_entropy(scaled(X), Y)).backward()
    scaler.unscale_(fused)
    scaler.step(fused)
    assert cmr.step == 1


def test_a_closure_a_strange_optimiser_and_a_wrong_clip_are_refused() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    CMR(model).attach(optimizer)
    for call in (lambda: optimizer.step(lambda: 0.0), lambda: optimizer.step(closure=lambda: 0.0)):
        with pytest.raises(RuntimeError, match=r"step\(closure\) computes its gradients inside the step"):
            call()
    with pytest.raises(ArgumentError, match=r"^optimizer holds none of the regularised weights"):
        CMR(network()).attach(optimizer)
    with pytest.raises(ArgumentError, match=r"^optimizer must be a torch optimiser, got str"):
        CMR(model).attach("adam")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"^clip_norm must be > 0, got 0"):
        CMR(model).attach(optimizer, clip_norm=0)
