"""`staggered` against `exact`: edges of every step, moments in turn, and what is held between."""

from itertools import pairwise

import pytest
import torch

from cmr_runner.spectral import NonFiniteError, PenaltySpec
from cmr_runner.spectral.engines import StaggeredEngine, staggered
from cmr_runner.spectral.engines.exact import ExactEngine
from cmr_runner.spectral.penalty import exact_penalty

from .layers import layers, relative, walk

SHAPES = [(96, 96), (96, 200), (200, 96), (10, 60), (60, 10)]


def with_clear_edges(B, m, n, seed=0):
    """Layers whose edges stand apart from the rest, so that their vectors are well defined."""
    W = layers(B, m, n, kappa=4, seed=seed).double()
    U, sigma, Vh = torch.linalg.svd(W, full_matrices=False)
    sigma[:, 0] *= 1.3
    sigma[:, -1] *= 0.5
    return ((U * sigma.unsqueeze(-2)) @ Vh).float()


@pytest.mark.parametrize("K", [3, 5, 6])
@pytest.mark.parametrize("gram", ["short_side", "columns"])
@pytest.mark.parametrize("shape", SHAPES)
def test_layers_that_stand_still_get_the_exact_gradient(shape, gram, K):
    W, spec = with_clear_edges(3, *shape), PenaltySpec(K=K, gram=gram)
    engine = StaggeredEngine(steps=16, refresh=2)
    for step in range(5):
        out = engine.penalty(W, spec, group="g", step=step)
    truth = exact_penalty(W.double(), spec)
    assert relative(out.gradient, truth.gradient) < 2e-3
    torch.testing.assert_close(out.moments, truth.moments, rtol=0, atol=1e-3)
    torch.testing.assert_close(out.value.double(), truth.value, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(out.norm.double(), truth.gradient.norm(dim=(-2, -1)), rtol=2e-3, atol=0)


@pytest.mark.parametrize("count", [1, 3, 8, 13])
def test_every_layer_has_its_moments_refreshed_once_in_a_turn_and_no_step_does_much_more(count):
    engine, refresh = StaggeredEngine(refresh=4), 4
    W = with_clear_edges(count, 48, 48)
    held = engine.penalty(W, PenaltySpec(), group="g", step=0).dense.clone()
    turns = torch.zeros(count, dtype=torch.int)
    for step in range(1, refresh + 1):
        W = W * 1.01  # the gradient of ρ_moment scales with 1/W, so a refreshed one differs
        dense = engine.penalty(W, PenaltySpec(), group="g", step=step).dense
        fresh = (dense != held).flatten(1).any(1)
        assert int(fresh.sum()) <= -(-count // refresh)
        turns += fresh
        held = dense.clone()
    assert (turns == 1).all()


def of_spectrum(sigma, seed=0):
    """Matrices with these singular values, at every call between the same orthogonal ones."""
    generator = torch.Generator().manual_seed(seed)
    U, V = (torch.linalg.qr(torch.randn(*sigma.shape, sigma.shape[-1], generator=generator))[0] for _ in range(2))
    return (U * sigma.unsqueeze(-2)) @ V.mT


@pytest.mark.parametrize("work", [0, staggered.PRODUCT_WORK])
def test_between_two_turns_the_moments_follow_the_edges(work, monkeypatch):
    """Edges that move change all moments, and what is held of the layers' interior does not have to."""
    monkeypatch.setattr(staggered, "PRODUCT_WORK", work)
    engine, spec = StaggeredEngine(steps=16, refresh=100, probes=256), PenaltySpec(K=6)
    sigma = torch.linspace(2, 1, 64).expand(3, -1).clone()
    first = engine.penalty(of_spectrum(sigma), spec, group="g", step=0)
    held, begun = first.dense.clone(), exact_penalty(of_spectrum(sigma), spec)
    for step in range(1, 6):
        sigma[:, 0] *= 1.03
        sigma[:, -1] *= 0.9
        out = engine.penalty(of_spectrum(sigma), spec, group="g", step=step)
    now = exact_penalty(of_spectrum(sigma), spec)
    tolerance = 1e-4 if work else 0.03  # of probes: their noise at the start
    assert (now.moments[:, 3:] - begun.moments[:, 3:]).abs().min() > 0.04
    torch.testing.assert_close(out.moments, now.moments.double(), rtol=0, atol=tolerance)
    torch.testing.assert_close(out.rho_moment, now.rho_moment.double(), rtol=0, atol=tolerance)
    assert torch.equal(out.dense, held)


def test_moments_that_cannot_follow_the_edges_are_computed_out_of_turn():
    engine, spec = StaggeredEngine(steps=16, refresh=100), PenaltySpec()
    sigma = torch.linspace(2, 1, 64).expand(3, -1).clone()
    engine.penalty(of_spectrum(sigma), spec, group="g", step=0)
    sigma[1].clamp_(min=1.8)  # what was between the edges of this layer is far outside now
    sigma[1] += torch.linspace(0.1, 0, 64)
    out = engine.penalty(of_spectrum(sigma), spec, group="g", step=1)
    truth = exact_penalty(of_spectrum(sigma), spec)
    fresh = StaggeredEngine(steps=16).penalty(of_spectrum(sigma), spec, group="g", step=0)
    torch.testing.assert_close(out.moments, truth.moments.double(), rtol=0, atol=1e-3)
    assert relative(out.dense[1], fresh.dense[1]) < 1e-3


def test_the_norm_is_that_of_the_whole_gradient_along_a_moving_layer():
    engine = StaggeredEngine(refresh=3)
    for step, W in enumerate(walk(layers(5, 64, 48, kappa=5), 7)):
        out = engine.penalty(W, PenaltySpec(alpha2=3.0), group="g", step=step)
        torch.testing.assert_close(out.norm, out.gradient.norm(dim=(-2, -1)), rtol=1e-4, atol=0)


@pytest.mark.parametrize("kappa", [1.05, 2, 8, 30, 300, 1e4, 1e5])
@pytest.mark.parametrize("shape", [(128, 128), (96, 200)])
def test_edges_follow_a_moving_layer(shape, kappa):
    """Rayleigh gaps stay within 3 % of the spread, and σ_min within 10 %, 2 % where κ is large."""
    engine, spec = StaggeredEngine(), PenaltySpec(eps=1e-12)
    for step, W in enumerate(walk(layers(3, *shape, kappa=kappa), 6, size=1e-4 / max(1, kappa / 100))):
        out = engine.penalty(W, spec, group="g", step=step)
        sigma = torch.linalg.svdvals(W.double())
        lam, found = sigma.square(), (out.sigma_max.double().square(), out.sigma_min.double().square())
        spread = lam[:, 0] - lam[:, -1]
        assert ((lam[:, 0] - found[0]) / spread).max() < 0.03
        assert ((found[1] - lam[:, -1]) / spread).max() < 0.03
        assert (out.sigma_min.double() / sigma[:, -1] - 1).abs().max() < (0.02 if kappa >= 300 else 0.1)


def test_without_a_term_its_part_of_the_gradient_is_not_there():
    W = with_clear_edges(2, 48, 48)
    cond = StaggeredEngine(steps=16).penalty(W, PenaltySpec(alpha2=0.0), group="g", step=0)
    assert cond.dense is None
    assert relative(cond.gradient, exact_penalty(W.double(), PenaltySpec(alpha2=0.0)).gradient) < 2e-3
    moment = StaggeredEngine(steps=16).penalty(W, PenaltySpec(alpha1=0.0), group="g", step=0)
    assert relative(moment.gradient, exact_penalty(W.double(), PenaltySpec(alpha1=0.0)).gradient) < 2e-3


def test_moments_by_probes_are_right_on_average(monkeypatch):
    monkeypatch.setattr(staggered, "PRODUCT_WORK", 0)
    W, spec = with_clear_edges(1, 72, 48), PenaltySpec(alpha1=0.0, alpha2=1.0)
    draws = [
        StaggeredEngine(seed=seed, steps=16, probes=8).penalty(W, spec, group="g", step=0).gradient
        for seed in range(400)
    ]
    truth = exact_penalty(W.double(), spec).gradient
    spread = torch.stack(draws).double().sub(truth).flatten(1).norm(dim=1).mean() / truth.norm()
    assert relative(torch.stack(draws).double().mean(0), truth) < 3 * spread / 400**0.5 + 2e-3


def test_by_probes_a_spectrum_too_narrow_for_them_has_no_moments_that_act(monkeypatch):
    """What probes find of an orthogonal layer is rounding, thousands of times larger than the truth."""
    monkeypatch.setattr(staggered, "PRODUCT_WORK", 0)
    W = torch.cat([layers(1, 64, 64, kappa=1), with_clear_edges(1, 64, 64)])
    out = StaggeredEngine().penalty(W, PenaltySpec(alpha1=0.0), group="g", step=0)
    assert not out.dense[0].any()
    assert out.norm[0] == 0
    assert out.norm[1] > 0
    assert out.fallbacks == 1
    assert torch.isfinite(out.value).all()


@pytest.mark.parametrize("gain", [0.06, 1.0])
def test_an_orthogonal_start_has_its_moments_computed_exactly_and_stays_bounded(gain):
    W, spec = layers(4, 64, 64, kappa=1, sigma_max=gain), PenaltySpec()
    engine = StaggeredEngine(refresh=2)
    for step in range(3):
        out = engine.penalty(W, spec, group="g", step=step)
        assert torch.isfinite(out.gradient).all()
        torch.testing.assert_close(out.moments.float(), exact_penalty(W, spec).moments, atol=0.05, rtol=0)
        assert out.fallbacks == (4 if step == 0 else 2)


@pytest.mark.parametrize("refresh", [1, 4])
def test_layers_taken_in_parts_get_what_they_get_at_once(refresh):
    """Parts of changing size, as rounds of turns have them."""
    whole, in_parts = StaggeredEngine(steps=8, refresh=refresh), StaggeredEngine(steps=8, refresh=refresh)
    for step, W in enumerate(walk(with_clear_edges(5, 48, 40), 8, size=1e-3)):
        cuts = [0, 5] if step % 3 == 0 else [0, 2, 3, 5]
        at_once = whole.penalty(W, PenaltySpec(), group="g", step=step)
        found = [in_parts.penalty(W[i:j], PenaltySpec(), group="g", step=step, place=(i, 5)) for i, j in pairwise(cuts)]
        gradient = torch.cat([part.gradient for part in found])
        assert relative(gradient, at_once.gradient) < 5e-3
        torch.testing.assert_close(torch.cat([part.moments for part in found]), at_once.moments, rtol=0, atol=1e-3)
        torch.testing.assert_close(torch.cat([part.norm for part in found]), gradient.norm(dim=(-2, -1)))


def test_a_layer_that_waited_longer_gets_a_filter_of_a_higher_degree(monkeypatch):
    degrees = []
    monkeypatch.setattr(
        staggered,
        "ritz_in_pieces",
        lambda W, X, lam, degree, of=staggered.ritz_in_pieces: (degrees.append(degree), of(W, X, lam, degree))[1],
    )
    engine, W = StaggeredEngine(steps=6), with_clear_edges(2, 48, 48)
    for step in (0, 1, 3, 7, 30):
        engine.penalty(W, PenaltySpec(), group="g", step=step)
    assert degrees == [6, 2, 3, 5, 6]


def test_another_number_of_layers_starts_anew():
    engine = StaggeredEngine()
    engine.penalty(layers(3, 48, 48, kappa=3), PenaltySpec(), group="g", step=0)
    W = with_clear_edges(2, 48, 48)
    out = engine.penalty(W, PenaltySpec(), group="g", step=1)
    assert relative(out.gradient, exact_penalty(W.double(), PenaltySpec()).gradient) < 2e-3


def test_results_of_an_earlier_step_keep_their_numbers():
    engine, batches = StaggeredEngine(refresh=1), list(walk(layers(3, 48, 48, kappa=3), 2, size=1e-2))
    first = engine.penalty(batches[0], PenaltySpec(), group="g", step=0)
    before = [tensor.clone() for tensor in (first.value, first.sigma_min, first.moments, first.rho_moment)]
    engine.penalty(batches[1], PenaltySpec(), group="g", step=1)
    after = (first.value, first.sigma_min, first.moments, first.rho_moment)
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize("shape", [(1, 7), (7, 1), (1, 1), (2, 5)])
def test_rows_columns_and_tiny_layers_are_exact(shape):
    W, spec = layers(2, *shape, kappa=3), PenaltySpec()
    engine = StaggeredEngine(refresh=1)
    for step in range(2):
        out = engine.penalty(W, spec, group="g", step=step)
    truth = ExactEngine().penalty(W.double(), spec).gradient.float()
    torch.testing.assert_close(out.gradient, truth, rtol=1e-3, atol=1e-5)


def test_zero_matrix_and_rank_deficient_layers_stay_finite():
    W = layers(3, 48, 48, kappa=5)
    W[0] = 0
    W[1] = W[1, :, :1] * W[1, :1]  # rank 1
    engine = StaggeredEngine(refresh=1)
    for step in range(3):
        out = engine.penalty(W, PenaltySpec(), group="g", step=step)
        assert torch.isfinite(out.gradient).all()
        assert torch.isfinite(out.value).all()


def test_autocast_does_not_reach_the_part_at_the_edges():
    out = StaggeredEngine().penalty(layers(2, 48, 48, kappa=3), PenaltySpec(), group="g", step=0)
    outside = out.gradient
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(out.gradient, outside)


def test_what_is_held_follows_the_weights_to_their_device():
    engine = StaggeredEngine()
    engine.penalty(layers(2, 48, 48, kappa=3), PenaltySpec(), group="g", step=0)
    held = engine._held["g"]
    moved = held.on(torch.device("meta"))
    assert moved.X.device.type == moved.dense.device.type == "meta"
    assert moved.evaluations.tolist() == held.evaluations.tolist() == [1, 1]
    assert held.on(held.X.device) is held


def test_a_state_of_an_earlier_version_starts_anew():
    engine, W = StaggeredEngine(), with_clear_edges(2, 48, 48)
    engine.penalty(W, PenaltySpec(), group="g", step=0)
    state = engine.state_dict()
    del state["groups"]["g"]["step"]
    later = StaggeredEngine()
    later.load_state_dict(state)
    assert (
        relative(later.penalty(W, PenaltySpec(), group="g", step=9).gradient, exact_penalty(W, PenaltySpec()).gradient)
        < 2e-3
    )


def test_half_precision_weights_get_a_gradient_in_their_own_dtype():
    out = StaggeredEngine().penalty(layers(2, 48, 48, kappa=3).bfloat16(), PenaltySpec(), group="g", step=0)
    assert out.gradient.dtype == out.value.dtype == torch.bfloat16


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("shape", [(48, 48), (40, 8)])
def test_non_finite_weights_are_refused(shape, bad):
    W = layers(2, *shape, kappa=3)
    W[1, 2, 3] = bad
    with pytest.raises(NonFiniteError):
        StaggeredEngine().penalty(W, PenaltySpec(), group="g", step=0)
