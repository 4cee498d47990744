"""Rounds of turns: which layers a step takes, and what becomes of those that wait."""

import copy

import pytest
import torch
from torch import nn

from cmr_runner import CMR
from cmr_runner.regularizers import CMRLearned
from cmr_runner.regularizers.groups import parts
from cmr_runner.regularizers.layers import LayerRule, find_layers
from cmr_runner.regularizers.turns import Rounds, round_lengths
from cmr_runner.spectral import NonFiniteError
from cmr_runner.spectral.engines import set_spectral_threads


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
    assert round_lengths(most, layers) == found


@pytest.mark.parametrize("turns", [8, 6, 12])
@pytest.mark.parametrize("frozen", [(), (0, 7, 8)])
def test_in_a_round_of_any_length_each_layer_has_one_turn(turns, frozen):
    model = nn.ModuleList(nn.Linear(6, 6 if i % 3 else 4) for i in range(17))
    layers = find_layers(model, LayerRule())
    own = [i for i in range(17) if i not in frozen]
    lengths = round_lengths(turns, len(layers))
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


def penalties(model, **options):
    """λ‖∇‖ of each layer by the exact engine."""
    cmr = CMR(model, engine="exact", **options)
    stepped(cmr, model, 1e9)
    return torch.stack([layer.weight.parameters[0].grad.norm() for layer in cmr.layers])


def unequal(count=16):
    """A network with one layer whose gradient is many times the others'."""
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(48, 48) for _ in range(count)))
    with torch.no_grad():
        model[5].weight.mul_(0.1)
    return model


def of_size(norm, model):
    """What each bias's entries have to be for a task gradient of this norm."""
    return float(norm) / sum(p.numel() for p in model.parameters() if p.ndim == 1) ** 0.5


@pytest.mark.parametrize("mixing", ["penalty_cap", "algorithm1"])
def test_a_round_is_as_long_as_no_turn_of_it_is_capped(mixing):
    model = unequal()
    push = penalties(model, lam=0.1, mixing="uncapped") / (0.1 if mixing == "algorithm1" else 1)
    for longest in (8, 4, 2):
        turns = [float(longest * push[turn::longest].norm()) for turn in range(longest)]
        for room, expected in ((1.1, longest), (0.9, longest // 2)):
            cmr = CMR(model, lam=0.1, rho_spec=0.5, mixing=mixing)
            size = of_size(room * max(turns) / 0.5, model)
            for _ in range(8):
                stepped(cmr, model, size)
            assert cmr.rounds.length == expected
            for _ in range(8):
                assert len(stepped(cmr, model, size)) == 16 // expected
                assert float(cmr.last.cap) == 1


def test_each_layer_gets_its_due_however_the_tasks_gradient_changes_and_one_layer_dominates():
    """Rounds begin and end whole, so none is left out or favoured where t changes from step to step."""
    model = unequal()
    due = penalties(model, lam=0.02)
    cmr, got, lengths = CMR(model, lam=0.02, mixing="uncapped"), torch.zeros(16), set()
    draws = torch.Generator().manual_seed(0)
    for _ in range(8 * 25):
        room = 10 ** float(2.2 * torch.rand((), generator=draws) - 0.3)
        stepped(cmr, model, of_size(room * due.norm() / 0.5, model))
        lengths.add(cmr.rounds.length)
        got += torch.stack([layer.weight.parameters[0].grad.norm() for layer in cmr.layers])
    assert lengths == {8, 4, 2, 1}
    torch.testing.assert_close(got / (8 * 25), due, rtol=0.03, atol=0)


def test_a_round_does_not_begin_or_end_inside_another():
    layers = find_layers(unequal(8), LayerRule())
    rounds = Rounds((8, 4, 2, 1))
    rounds.norms = {layer.name: 1.0 for layer in layers}
    assert [rounds.next_length(step, layers, 1e3) for step in range(1, 9)] == [1, 2, 1, 4, 1, 2, 1, 8]
    rounds.norms.popitem()  # a layer that was unfrozen just now
    assert rounds.next_length(8, layers, 1e3) == 1


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


def descended(cmr, model, steps):
    for _ in range(steps):
        stepped(cmr, model, 1e3)
        with torch.no_grad():
            for layer in cmr.layers:
                weight = layer.weight.parameters[0]
                weight -= 1e-2 * weight.grad
    return model


@pytest.mark.parametrize("kind", [CMR, CMRLearned])
def test_a_state_saved_within_a_round_continues_bit_for_bit(kind):
    straight = unequal()
    whole = kind(straight)
    descended(whole, straight, 24)
    first, second = unequal(), unequal()
    before = kind(first)
    descended(before, first, 13)
    assert before.rounds.length == 8
    second.load_state_dict(first.state_dict())
    after = kind(second)
    after.load_state_dict(copy.deepcopy(before.state_dict()))
    descended(after, second, 11)
    assert all(torch.equal(a, b) for a, b in zip(straight.parameters(), second.parameters(), strict=True))
    assert after.last.numbers() == whole.last.numbers()


@pytest.mark.parametrize("options", [{"engine": {"name": "auto", "turns": 1}}, {"engine": "exact"}, {"every": 2}])
def test_a_state_saved_within_a_round_goes_on_without_rounds(options):
    model = unequal()
    before = CMR(model)
    descended(before, model, 13)
    after, fresh = CMR(model, **options), CMR(model, **options)
    after.load_state_dict(before.state_dict())
    after.step = fresh.step
    assert len(stepped(after, model, 1e3)) == 16
    pushed = after.last.norm_spec
    stepped(fresh, model, 1e3)
    torch.testing.assert_close(pushed, fresh.last.norm_spec, rtol=1e-2, atol=0)


def test_after_layers_were_replaced_a_round_has_a_turn_for_each():
    model = nn.Sequential(*(nn.Linear(48, 48) for _ in range(16)))
    cmr = CMR(model)
    for _ in range(8):
        stepped(cmr, model, 1e6)
    assert cmr.rounds.length == 8
    del model[2:]
    model[0], model[1] = nn.Linear(48, 48), nn.Linear(48, 48)
    with pytest.warns(UserWarning, match="replaced"):
        stepped(cmr, model, 1e6)
    assert cmr.rounds.lengths == (2, 1)
    stepped(cmr, model, 1e6)
    assert [len(stepped(cmr, model, 1e6)) for _ in range(4)] == [1] * 4


def test_what_a_layer_was_known_to_be_stays_known_while_another_is_frozen():
    model = nn.Sequential(*(nn.Linear(48, 48 if i % 2 else 40) for i in range(16)))
    cmr = CMR(model)
    for _ in range(9):
        stepped(cmr, model, 1e6)
    model[3].weight.requires_grad = False
    for p in model.parameters():
        p.grad = torch.full_like(p, 1e6) if p.requires_grad else None
    cmr.add_gradients()
    known = set(cmr.last.kappa_by_layer())
    assert {f"{i}.weight" for i in range(0, 16, 2)} <= known  # of the other shape


@pytest.mark.parametrize("loaded", [True, False], ids=["loaded", "failed"])
def test_work_that_began_for_other_weights_is_dropped(loaded):
    set_spectral_threads(2)
    try:
        model, plain = unequal(), unequal()
        cmr, alone = CMR(model, engine="exact"), CMR(plain, engine="exact")
        cmr._overlap = nn.Module()  # that always begins early
        cmr._overlap.worth_it, cmr._overlap.step_ended = lambda: True, lambda: None
        good = copy.deepcopy(model.state_dict())
        with torch.no_grad():
            model[0].weight.fill_(torch.nan if not loaded else 3.0)
        cmr.start()
        if loaded:
            cmr.load_state_dict(alone.state_dict())
        else:
            with pytest.raises(NonFiniteError):
                stepped(cmr, model, 1.0)
        model.load_state_dict(good)
        stepped(cmr, model, 1.0)
        stepped(alone, plain, 1.0)
        for a, b in zip(model.parameters(), plain.parameters(), strict=True):
            torch.testing.assert_close(a.grad, b.grad)
    finally:
        set_spectral_threads(1)
