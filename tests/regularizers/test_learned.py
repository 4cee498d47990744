"""Learned moment weights stay on their simplex and go where the moments are."""

import copy

import pytest
import torch
from torch import nn

from cmr_runner.regularizers import CMRLearned
from cmr_runner.spectral import moment_weights, moments, singular_values


def make(K: int = 6, **keys: float) -> CMRLearned:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 12), nn.Linear(12, 12))
    return CMRLearned(model, K=K, mixing="uncapped", engine="exact", **keys)  # type: ignore[arg-type]


def test_weights_start_at_the_fixed_scheme_and_keep_its_total() -> None:
    cmr = make()
    torch.testing.assert_close(cmr.weights, moment_weights(6, 0.15))
    for _ in range(20):
        cmr.add_gradients()
        assert (cmr.weights >= 0).all()
        assert float(cmr.weights.sum()) == pytest.approx(float(moment_weights(6, 0.15).sum()))
    assert list(cmr.epoch_columns()) == ["weight_3", "weight_4", "weight_5", "weight_6"]
    assert list(cmr.epoch_columns().values()) == cmr.weights.tolist()
    assert torch.equal(cmr.spec.w, cmr.weights)


def test_weights_settle_at_the_softmax_of_the_moments() -> None:
    cmr = make(rate=1.0, temperature=0.2)
    s = torch.stack([moments(singular_values(layer.matrix()), layer.shape, 6, 1e-6) for layer in cmr.layers])
    m = s[:, 3:].square().mean(0)
    cmr.add_gradients()
    w0 = moment_weights(6, 0.15)
    torch.testing.assert_close(cmr.weights, w0.sum() * torch.softmax(w0.log() + m / 0.2, 0), rtol=1e-4, atol=1e-6)


def test_a_small_temperature_presses_the_largest_moment_alone() -> None:
    cmr = make(rate=1.0, temperature=1e-4)
    s = torch.stack([moments(singular_values(layer.matrix()), layer.shape, 6, 1e-6) for layer in cmr.layers])
    cmr.add_gradients()
    assert int(cmr.weights.argmax()) == int(s[:, 3:].square().mean(0).argmax())
    assert float(cmr.weights.max()) == pytest.approx(float(cmr.weights.sum()), rel=1e-3)


def test_weights_travel_in_the_state_dict() -> None:
    cmr, other = make(), make()
    for _ in range(5):
        cmr.add_gradients()
    other.load_state_dict(copy.deepcopy(cmr.state_dict()))
    assert torch.equal(other.weights, cmr.weights)
    assert torch.equal(other.spec.w, cmr.spec.w)


def test_what_is_measured_keeps_the_fixed_weights() -> None:
    cmr = make(rate=1.0)
    cmr.add_gradients()
    torch.testing.assert_close(cmr.measure.w, moment_weights(6, 0.15))


@pytest.mark.parametrize("keys", [{"temperature": 0}, {"rate": 0}, {"rate": 2}])
def test_senseless_settings_are_refused(keys: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=rf"^{next(iter(keys))} must be"):
        make(**keys)


def test_where_layers_take_turns_the_weights_follow_the_mean_over_all_layers() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(48, 48) for _ in range(9)))
    with torch.no_grad():
        model[0].weight[:, 12:] *= 0.1  # of a turn that has two layers, and with other moments than the rest
    found = []
    for turns in (1, 8):
        cmr = CMRLearned(model, engine={"name": "auto", "turns": turns, "refresh": 1}, temperature=0.03)
        for _ in range(24):
            for p in model.parameters():
                p.grad = torch.full_like(p, 1e6)
            cmr.add_gradients()
        assert cmr.rounds.length == turns
        found.append(cmr.weights)
    torch.testing.assert_close(found[1], found[0], rtol=1e-3, atol=0)
    assert (found[0] - moment_weights(5, 0.15)).abs().max() > 0.01
