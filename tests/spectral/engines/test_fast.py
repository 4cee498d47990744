"""`fast` against its twins: the SVD closed form, and itself in float64."""

import pytest
import torch

from cmr_runner.spectral import NonFiniteError, PenaltySpec
from cmr_runner.spectral.engines import FastEngine
from cmr_runner.spectral.engines.edges import gram_edges
from cmr_runner.spectral.engines.fast import penalty_from_edges
from cmr_runner.spectral.penalty import exact_penalty

from .layers import double, gram, layers, relative, svd_edges, walk

SHAPES = [(48, 48), (72, 48), (48, 72)]
GRAMS = ["short_side", "columns"]


@pytest.mark.parametrize("K", [3, 4, 5, 6, 7, 8, 9])
@pytest.mark.parametrize("reading", GRAMS)
@pytest.mark.parametrize("shape", SHAPES)
def test_products_equal_the_closed_form_given_exact_edges(shape, reading, K):
    W = layers(3, *shape, kappa=8).double()
    spec = PenaltySpec(K=K, gram=reading)
    got, truth = penalty_from_edges(W, gram(W), svd_edges(W), spec), exact_penalty(W, spec)
    assert relative(got.gradient, truth.gradient) < 1e-10
    torch.testing.assert_close(got.moments, truth.moments, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(got.value, truth.value)
    torch.testing.assert_close(got.rho_moment, truth.rho_moment)


def test_products_with_learned_weights_and_with_d_at_its_floor():
    W = layers(2, 40, 40, kappa=3).double()
    for spec in (PenaltySpec(weights=torch.tensor([0.3, 2.0, -1.0])), PenaltySpec(eps=0.5)):
        got, truth = penalty_from_edges(W, gram(W), svd_edges(W), spec), exact_penalty(W, spec)
        assert relative(got.gradient, truth.gradient) < 1e-10


@pytest.mark.parametrize("kappa", [1.05, 1.5, 4, 100, 1e4])
@pytest.mark.parametrize("shape", [(256, 256), (256, 784)])
@pytest.mark.parametrize("reading", GRAMS)
def test_float32_moments_and_gradient_given_the_edges_are_good_to_1e4(reading, shape, kappa):
    W = layers(2, *shape, kappa=kappa)
    spec, edges = PenaltySpec(alpha1=0, alpha2=1, gram=reading), svd_edges(W)
    got = penalty_from_edges(W, gram(W), edges, spec)
    truth = penalty_from_edges(W.double(), gram(W.double()), double(edges), spec)
    assert relative(got.gradient, truth.gradient) < 1e-4
    assert relative(got.moments[:, 3:], truth.moments[:, 3:]) < 1e-4


@pytest.mark.parametrize("kappa", [1.02, 2, 8, 30, 300, 1e4])
@pytest.mark.parametrize("shape", [(128, 128), (96, 200)])
def test_edges_follow_a_moving_layer(shape, kappa):
    """Rayleigh gaps stay within the bar of 3 % of the spread, and σ_min within 10 % whatever κ is."""
    engine, spec = FastEngine(), PenaltySpec()
    for step, W in enumerate(walk(layers(3, *shape, kappa=kappa), 6, size=1e-4)):
        out = engine.penalty(W, spec, group="g", step=step)
        sigma = torch.linalg.svdvals(W.double())
        lam, found = sigma.square(), (out.sigma_max.double().square(), out.sigma_min.double().square())
        spread = lam[:, 0] - lam[:, -1]
        assert ((lam[:, 0] - found[0]) / spread).max() < 0.03
        assert ((found[1] - lam[:, -1]) / spread).max() < 0.03
        assert (out.sigma_min.double() / sigma[:, -1]).max() < 1.1


def test_a_still_layer_ends_at_the_exact_gradient():
    """With edges far apart the vectors are well defined, so the whole gradient must agree."""
    W = layers(2, 96, 96, kappa=4)
    U, sigma, Vh = torch.linalg.svd(W.double())
    sigma[:, 0] *= 1.3
    sigma[:, -1] *= 0.5
    W = ((U * sigma.unsqueeze(-2)) @ Vh).float()
    engine, spec = FastEngine(), PenaltySpec()
    for step in range(4):
        out = engine.penalty(W, spec, group="g", step=step)
    assert relative(out.gradient, exact_penalty(W.double(), spec).gradient) < 1e-3
    assert out.fallbacks == 0


@pytest.mark.parametrize("gain", [0.06, 1.0])
def test_orthogonal_start_is_computed_exactly_and_stays_bounded(gain):
    W, spec = layers(3, 64, 64, kappa=1, sigma_max=gain), PenaltySpec()
    engine = FastEngine()
    for step in range(3):
        out = engine.penalty(W, spec, group="g", step=step)
        assert torch.isfinite(out.gradient).all()
        torch.testing.assert_close(out.moments, exact_penalty(W, spec).moments, atol=0.05, rtol=0)
    assert out.fallbacks == 3  # by then Lanczos ran, and its spectrum was too narrow to subtract c in float32


def test_edges_that_fail_their_check_are_taken_from_the_exact_engine():
    engine, spec = FastEngine(steps=2), PenaltySpec()
    engine.penalty(layers(3, 64, 64, kappa=3), spec, group="g", step=0)
    far = layers(3, 64, 64, kappa=3, seed=9)  # two steps from vectors of another matrix cannot do
    out = engine.penalty(far, spec, group="g", step=1)
    assert out.fallbacks == 3
    assert relative(out.gradient, exact_penalty(far.double(), spec).gradient) < 1e-3


def test_sharpened_low_edge_resolves_kappa_where_a_float32_gram_matrix_cannot():
    W = layers(2, 128, 128, kappa=1e4)
    start = torch.randn(2, 128, generator=torch.Generator().manual_seed(0))
    edges = gram_edges(W, gram(W), start, 16, eps=1e-6)
    truth = torch.linalg.svdvals(W.double())[:, -1]
    torch.testing.assert_close(edges.sigma[:, 1].double(), truth, rtol=1e-3, atol=0)


def test_without_rho_cond_an_unsharpened_low_edge_gives_the_gradient_to_two_percent():
    W, spec = layers(2, 128, 128, kappa=1e4), PenaltySpec(alpha1=0, alpha2=1)
    engine = FastEngine()
    for step in range(3):
        out = engine.penalty(W, spec, group="g", step=step)
    assert out.fallbacks == 0
    assert relative(out.gradient, exact_penalty(W.double(), spec).gradient) < 2e-2


def test_small_layers_and_rows_are_exact():
    for shape in [(10, 40), (1, 7), (7, 1), (1, 1)]:
        W, spec = layers(2, *shape, kappa=3), PenaltySpec()
        engine = FastEngine()
        for step in range(2):
            out = engine.penalty(W, spec, group="g", step=step)
        torch.testing.assert_close(out.gradient, exact_penalty(W, spec).gradient)


def test_zero_matrix_and_rank_deficient_layers_stay_finite():
    W = layers(3, 40, 40, kappa=5)
    W[0] = 0
    W[1] = W[1, :, :1] * W[1, :1]  # rank 1
    engine = FastEngine()
    for step in range(3):
        out = engine.penalty(W, PenaltySpec(), group="g", step=step)
        assert torch.isfinite(out.gradient).all()
        assert torch.isfinite(out.value).all()


def test_half_precision_weights_get_a_gradient_in_their_own_dtype():
    W = layers(2, 40, 40, kappa=3)
    out = FastEngine().penalty(W.bfloat16(), PenaltySpec(), group="g", step=0)
    assert out.gradient.dtype == out.value.dtype == torch.bfloat16


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_non_finite_weights_are_refused(bad):
    W = layers(2, 40, 40, kappa=3)
    W[1, 2, 3] = bad
    with pytest.raises(NonFiniteError):
        FastEngine().penalty(W, PenaltySpec(), group="g", step=0)
