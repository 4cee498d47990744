"""`stochastic`: unbiased given its edges, and how much it varies."""

import pytest
import torch

from cmr_runner.spectral import NonFiniteError, PenaltySpec
from cmr_runner.spectral.engines import StochasticEngine
from cmr_runner.spectral.engines.edges import Edges
from cmr_runner.spectral.engines.fast import penalty_from_edges
from cmr_runner.spectral.engines.probes import signs
from cmr_runner.spectral.engines.stochastic import sampled_penalty
from cmr_runner.spectral.penalty import exact_penalty

from .layers import gram, layers, svd_edges, walk


def draws(W, spec, probes, count, seed=0):
    """`count` independent estimates for one matrix W (1, m, n), as a batch."""
    edges = Edges(*(field.expand(count, *field.shape[1:]) for field in svd_edges(W)))
    Z = signs((count, 2 * probes, min(W.shape[1:])), torch.Generator().manual_seed(seed)).to(W)
    return sampled_penalty(W.expand(count, -1, -1).contiguous(), Z, edges, spec)


@pytest.mark.parametrize("K", [3, 4, 5, 6, 7])
@pytest.mark.parametrize(("shape", "reading"), [((30, 24), "short_side"), ((24, 30), "columns")])
def test_penalty_and_gradient_are_unbiased(shape, reading, K):
    """The mean of many draws lies as far from the truth as its own standard error says, in value and in gradient."""
    W, count = layers(1, *shape, kappa=5).double(), 4000
    spec = PenaltySpec(K=K, alpha1=0, alpha2=1, gram=reading)
    truth, out = exact_penalty(W, spec), draws(W, spec, probes=3, count=count)
    error = (out.gradient.mean(0) - truth.gradient[0]).norm()
    expected = (out.gradient.var(0).sum() / count).sqrt()
    assert error < 1.5 * expected
    assert expected < 0.25 * truth.gradient.norm()  # else the first line would say little
    assert abs(out.value.mean() - truth.value[0]) < 4 * out.value.std() / count**0.5
    spread = out.moments.std(0) / count**0.5
    assert ((out.moments.mean(0) - truth.moments[0]).abs() <= 4 * spread + 1e-12).all()


def test_as_many_orthogonal_probes_as_columns_give_the_exact_result():
    """ZᵀZ = I·p then, so nothing is random: the splitting must equal the polynomial it splits."""
    W = layers(1, 32, 32, kappa=6).double()
    hadamard = torch.ones(1, 1, dtype=torch.float64)
    while len(hadamard) < 32:
        hadamard = torch.cat([torch.cat([hadamard, hadamard], 1), torch.cat([hadamard, -hadamard], 1)])
    Z = torch.cat([hadamard, hadamard]).unsqueeze(0)
    for K in range(3, 10):
        spec = PenaltySpec(K=K)
        got, truth = sampled_penalty(W, Z, svd_edges(W), spec), exact_penalty(W, spec)
        torch.testing.assert_close(got.gradient, truth.gradient, rtol=1e-8, atol=1e-9)
        torch.testing.assert_close(got.moments, truth.moments)
        torch.testing.assert_close(got.value, truth.value)


def test_moment_gradient_of_16_probes_points_along_the_exact_one():
    """Where the moments stand clear of their own noise, 1/√(np): here a spectrum crowded at its low end."""
    W = layers(1, 256, 256, kappa=4)
    U, sigma, Vh = torch.linalg.svd(W)
    sigma = sigma[:, -1:] + (sigma - sigma[:, -1:]) ** 2 / (sigma[:, :1] - sigma[:, -1:])
    W = (U * sigma.unsqueeze(-2)) @ Vh
    spec = PenaltySpec(alpha1=0, alpha2=1)
    truth = penalty_from_edges(W, gram(W), svd_edges(W), spec).gradient
    out = draws(W, spec, probes=16, count=21)
    cosine = torch.nn.functional.cosine_similarity(out.gradient.flatten(1), truth.flatten(1), dim=1)
    assert cosine.median() > 0.9


def test_edges_follow_a_moving_layer_within_the_spread():
    engine, spec = StochasticEngine(), PenaltySpec()
    for step, W in enumerate(walk(layers(2, 128, 160, kappa=3), 6, size=1e-4)):
        out = engine.penalty(W, spec, group="g", step=step)
        lam = torch.linalg.svdvals(W.double()).square()
        spread = lam[:, 0] - lam[:, -1]
        assert ((lam[:, 0] - out.sigma_max.double().square()) / spread).max() < 0.03
        assert ((out.sigma_min.double().square() - lam[:, -1]) / spread).max() < 0.03


def test_orthogonal_start_and_small_layers_stay_finite():
    for shape in [(64, 64), (10, 40), (1, 5)]:
        engine = StochasticEngine()
        for step in range(2):
            out = engine.penalty(layers(2, *shape, kappa=1, sigma_max=0.06), PenaltySpec(), group="g", step=step)
            assert torch.isfinite(out.gradient).all()


def test_non_finite_weights_are_refused():
    W = layers(2, 40, 40, kappa=3)
    W[0, 0, 0] = torch.inf
    with pytest.raises(NonFiniteError):
        StochasticEngine().penalty(W, PenaltySpec(), group="g", step=0)
