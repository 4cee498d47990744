"""The exact engine against its twin and against matrices whose factors are known.

Tolerances. LAPACK's SVD is backward stable: |δσ_i| <= p·eps·σ_max with p = max(m, n), and a singular vector turns by at
most p·eps·σ_max/gap. At σ_min of a geometric spectrum that is p·eps·κ relative, and p·eps·κ/g for the vectors, g the
least relative gap. So a gradient is good to p·eps·κ·(1 + 1/g); an eigh of the Gram matrix would only give eps·κ².
"""

import pytest
import torch

from cmr_runner.spectral import PenaltySpec, layer_penalty
from cmr_runner.spectral.engines import ExactEngine
from cmr_runner.spectral.penalty import exact_penalty

from . import reference
from .matrices import SHAPES, factors, geometric, least_relative_gap, with_spectrum

GRAMS = ("short_side", "columns")
# The two readings of the Gram matrix differ for wide matrices only (test_gram_readings_agree_unless_wide).
CASES = [(shape, "short_side") for shape in SHAPES] + [("wide", "columns"), ("row", "columns")]
TERMS = {"cond": (1.0, 0.0), "moment": (0.0, 1.0), "both": (1.0, 0.1)}


def specification(term: str = "both", gram: str = "short_side", **changes) -> PenaltySpec:
    alpha1, alpha2 = TERMS[term]
    return PenaltySpec(**{"K": 6, "alpha1": alpha1, "alpha2": alpha2, "gram": gram, **changes})


def exact(W, spec):
    """The engine on one matrix."""
    out = ExactEngine().penalty(W.unsqueeze(0), spec, group="", step=0)
    return out.value[0], out.gradient[0]


def natural_scale(sigma, spec):
    """The size of the terms a gradient is summed from: where they cancel (r = 1), errors are relative to this."""
    cond = 1 / sigma[0] + sigma[-1] / (sigma[-1] ** 2 + spec.eps)
    moment = sigma[0] * spec.K**2 / max((sigma[0] ** 2 - sigma[-1] ** 2) / 2, spec.eps)
    return spec.alpha1 * cond + spec.alpha2 * moment


def size(grad, sigma, spec):
    return grad.norm() if len(sigma) > 1 else natural_scale(sigma, spec)


@pytest.mark.parametrize(("shape", "gram"), CASES)
@pytest.mark.parametrize("term", TERMS)
@pytest.mark.parametrize("kappa", [1.5, 10.0, 1e3, 1e5])
def test_float64_matches_twin_to_1e10(kappa, shape, term, gram):
    m, n = SHAPES[shape]
    sigma, spec = geometric(kappa, min(m, n), sigma_max=1.7), specification(term, gram)
    W = with_spectrum(sigma, m, n)
    value, grad = exact(W, spec)
    truth = reference.gradient(W, spec)
    assert value.item() == pytest.approx(reference.penalty(W, spec).item(), rel=1e-10, abs=1e-14)
    assert (grad - truth).norm() <= 1e-10 * size(truth, sigma, spec)


@pytest.mark.parametrize(("shape", "gram"), CASES)
@pytest.mark.parametrize("term", ["cond", "moment"])
@pytest.mark.parametrize("kappa", [2.0, 1e2, 1e4, 1e6, 1e8])
def test_float64_matches_known_factors_to_eps_kappa(kappa, shape, term, gram):
    """No SVD on the reference side: U, σ and V are the ones W was made from."""
    m, n = SHAPES[shape]
    r = min(m, n)
    sigma, spec = geometric(kappa, r), specification(term, gram)
    U, V = factors(m, n)
    truth = (U * reference.slopes(sigma, (m, n), spec)) @ V.T
    value, grad = exact(with_spectrum(sigma, m, n), spec)
    tolerance = max(m, n) * torch.finfo(torch.float64).eps * kappa * (1 + 1 / least_relative_gap(kappa, r))
    assert (grad - truth).norm() <= tolerance * size(truth, sigma, spec)
    assert value.item() == pytest.approx(reference.penalty_of_spectrum(sigma, (m, n), spec).item(), abs=tolerance)


@pytest.mark.parametrize(("shape", "gram"), CASES)
@pytest.mark.parametrize("term", ["cond", "moment"])
@pytest.mark.parametrize("kappa", [2.0, 1e2, 1e4, 1e5])
def test_float32_matches_twin_to_eps_kappa(kappa, shape, term, gram):
    m, n = SHAPES[shape]
    r = min(m, n)
    spec = specification(term, gram)
    W = with_spectrum(geometric(kappa, r), m, n).float()
    value, grad = exact(W, spec)
    truth = reference.gradient(W, spec)
    tolerance = max(m, n) * torch.finfo(torch.float32).eps * kappa * (1 + 1 / least_relative_gap(kappa, r))
    assert value.dtype == grad.dtype == torch.float32
    assert (grad - truth).norm() <= tolerance * size(truth, geometric(kappa, r), spec)
    assert value.item() == pytest.approx(reference.penalty(W, spec).item(), abs=tolerance + 1e-6)


@pytest.mark.parametrize("shape", [(48, 48), (64, 40), (40, 64)])
@pytest.mark.parametrize("kappa", [2.0, 25.0, 40.0, 1e3])
def test_float32_is_as_good_on_both_sides_of_the_engines_gram_shortcut(kappa, shape):
    """From side 32 and below κ = 29 the engine takes float32 vectors from the Gram matrix: eps·κ² is within p·eps·κ."""
    W = with_spectrum(geometric(kappa, min(shape)), *shape).float()
    tolerance = max(shape) * torch.finfo(torch.float32).eps * kappa * (1 + 1 / least_relative_gap(kappa, min(shape)))
    for term in ("cond", "moment"):
        truth = reference.gradient(W, specification(term))
        assert (exact(W, specification(term))[1] - truth).norm() <= tolerance * truth.norm()


@pytest.mark.parametrize("kappa", [1e6, 1e7, 1e8])
def test_float32_gradient_past_its_resolution_stays_finite_and_bounded(kappa):
    """Past κ ≈ 1e6 float32 no longer knows σ_min, but |σ_min/(σ_min² + ε)| <= 1/(2√ε) whatever σ_min comes out as."""
    spec = specification("cond")
    _, grad = exact(with_spectrum(geometric(kappa, 8), 8, 8).float(), spec)
    assert grad.norm() <= 1 + 0.5 / spec.eps**0.5 + 1e-3


@pytest.mark.parametrize("gram", GRAMS)
@pytest.mark.parametrize("shape", [(5, 5), (6, 4), (4, 6), (2, 3, 4)])
def test_gradcheck(shape, gram):
    torch.manual_seed(0)
    W = torch.randn(*shape, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda A: layer_penalty(A, specification("both", gram)), W)


def test_gradcheck_with_d_at_its_floor():
    """d = ε is constant there, c still moves: the term through d must be off and the one through c on."""
    W = with_spectrum(torch.tensor([1.0, 0.93, 0.86, 0.81]), 5, 4).requires_grad_()
    assert torch.autograd.gradcheck(lambda A: layer_penalty(A, specification(eps=0.5)), W)


def test_batched_equals_one_by_one():
    torch.manual_seed(1)
    W, spec = torch.randn(2, 3, 5, 4, dtype=torch.float64), specification()
    whole = exact_penalty(W, spec)
    assert whole.value.shape == (2, 3)
    assert whole.gradient.shape == W.shape
    assert whole.moments.shape == (2, 3, spec.K + 1)
    for i in range(2):
        for j in range(3):
            one = exact_penalty(W[i, j], spec)
            torch.testing.assert_close(whole.value[i, j], one.value)
            torch.testing.assert_close(whole.gradient[i, j], one.gradient)
            torch.testing.assert_close(whole.moments[i, j], one.moments)


def test_statistics_of_the_engine_are_those_of_the_twin():
    W, spec = with_spectrum(geometric(50, 6), 8, 6), specification()
    out = ExactEngine().penalty(W[None], spec, group="", step=0)
    sigma = torch.linalg.svdvals(W)
    assert out.sigma_max[0].item() == pytest.approx(1.0)
    assert out.sigma_min[0].item() == pytest.approx(1 / 50)
    assert out.rho_cond[0].item() == pytest.approx(reference.rho_cond(sigma, spec.eps).item())
    rho_moment = reference.rho_moment(sigma, (8, 6), spec.K, spec.beta, spec.eps, spec.gram)
    assert out.rho_moment[0].item() == pytest.approx(rho_moment.item())
    torch.testing.assert_close(out.moments[0], reference.moments(sigma, (8, 6), spec.K, spec.eps, spec.gram))
    assert out.value[0].item() == pytest.approx(out.rho_cond[0].item() + 0.1 * out.rho_moment[0].item())
    assert out.skipped == 0


def test_given_weights_replace_the_exponential_ones():
    W = with_spectrum(geometric(5, 4), 4, 4)
    only_fourth = PenaltySpec(K=5, alpha1=0, alpha2=1, weights=torch.tensor([0.0, 2.0, 0.0]))
    s = reference.moments(torch.linalg.svdvals(W), (4, 4), 5, only_fourth.eps, "short_side")
    assert layer_penalty(W, only_fourth).item() == pytest.approx(2 * s[4].item() ** 2)


def test_gram_readings_agree_unless_wide():
    for (m, n), equal in {(6, 6): True, (9, 6): True, (6, 9): False}.items():
        W = with_spectrum(geometric(7, 6), m, n)
        short, columns = (layer_penalty(W, specification("moment", gram)) for gram in GRAMS)
        assert torch.isclose(short, columns).item() is equal


@pytest.mark.parametrize("gram", GRAMS)
def test_columns_reading_is_the_trace_of_the_papers_gram_matrix(gram):
    """T_k(Ĝ) built as a matrix polynomial, Ĝ from WᵀW or the smaller Gram matrix: nothing is shared with the core."""
    W, eps = with_spectrum(geometric(4, 4), 4, 7), 1e-6
    G = W.T @ W if gram == "columns" else W @ W.T
    lam = torch.linalg.eigvalsh(G)
    G_hat = (G - (lam[-1] + lam[0]) / 2 * torch.eye(len(G))) / max((lam[-1] - lam[0]) / 2, eps)
    T3 = 4 * G_hat @ G_hat @ G_hat - 3 * G_hat
    expected = (T3.trace() / len(G)) ** 2
    spec = PenaltySpec(K=3, alpha1=0, alpha2=1, eps=eps, gram=gram)
    assert layer_penalty(W, spec).item() == pytest.approx(expected.item(), rel=1e-10)
