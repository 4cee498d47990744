"""Rounds of turns: which layers a step takes, and what becomes of those that wait."""

import pytest
import torch
from torch import nn

from cmr_runner import CMR
from cmr_runner.regularizers.layers import LayerRule, find_layers
from cmr_runner.regularizers.turns import parts, waits


@pytest.mark.parametrize(
    ("most", "layers", "found"),
    [
        (8, 15, (8, 4, 2, 1)),
        (8, 6, (6, 3, 1)),
        (8, 7, (6, 3, 1)),
        (8, 5, (4, 2, 1)),
        (6, 9, (6, 3, 1)),
        (7, 7, (7, 1)),
        (8, 1, (1,)),
        (1, 4, (1,)),
    ],
)
def test_rounds_divide_each_other_and_leave_no_step_without_a_layer(most, layers, found):
    assert waits(most, layers) == found


@pytest.mark.parametrize("turns", [8, 6, 12])
@pytest.mark.parametrize("frozen", [(), (0, 7, 8)])
def test_in_a_round_of_any_length_each_layer_has_one_turn(turns, frozen):
    model = nn.ModuleList(nn.Linear(6, 6 if i % 3 else 4) for i in range(17))
    layers = find_layers(model, LayerRule())
    own = [i for i in range(17) if i not in frozen]
    lengths = waits(turns, len(layers))
    for length in lengths:
        seen = []
        for turn in range(length):
            for group, part in parts(layers, own, lengths, length, turn).items():
                assert all(group == "{}x{}".format(*layer.shape) for layer in part.members)
                seen += [layer.name for layer in part.layers]
                assert all(layers.index(layer) % length == turn for layer in part.layers)
        assert sorted(seen) == sorted(layers[i].name for i in own)


def stepped(cmr, model, size):
    """One step with a task gradient of this size, at the biases alone."""
    for p in model.parameters():
        p.grad = torch.full_like(p, size if p.ndim == 1 else 0.0)
    cmr.add_gradients()
    return [layer.name for layer in cmr.layers if layer.weight.parameters[0].grad.any()]


def test_the_larger_the_tasks_gradient_the_longer_a_layer_waits():
    """A round of t steps adds √t times the gradient at each: it is as long as that stays within ρ_spec."""
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(40, 40) for _ in range(8)))
    cmr = CMR(model, lam=0.1, rho_spec=0.5)
    stepped(cmr, model, 1e6)
    whole = float(cmr.last.norm_spec)  # λ times the norm of the penalty's gradient
    per_bias = (8 * 40) ** 0.5
    for longest in (8, 4, 2, 1):
        size = 1.3 * longest**0.5 * whole / 0.5 / per_bias
        cmr = CMR(model, lam=0.1, rho_spec=0.5)
        stepped(cmr, model, size)
        assert len(stepped(cmr, model, size)) == 8 // longest
        assert float(cmr.last.cap) == 1


def test_the_numbers_of_a_step_are_of_every_layer_once_however_rounds_change():
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(40, 40) for _ in range(9)))
    cmr = CMR(model)
    whole = CMR(model, engine="exact")
    for size in (1e6, 1e6, 1e6, 1e-6, 1e-6, 1e6, 1e6, 1e-6):
        stepped(cmr, model, size)
        assert list(cmr.last.kappa_by_layer()) == [layer.name for layer in cmr.layers]
    stepped(whole, model, 1.0)
    assert float(cmr.last.penalty) == pytest.approx(float(whole.last.penalty), rel=1e-2)
    torch.testing.assert_close(cmr.last.kappa, whole.last.kappa, rtol=0.05, atol=0)
