"""Degenerate spectra are the normal case: an orthogonal start has κ = 1, and CMR drives layers towards it."""

import math

import pytest
import torch

from cmr_runner.spectral import (
    PenaltySpec,
    condition_number,
    layer_penalty,
    moments,
    rho_cond,
    rho_cond_gradient,
    rho_moment_gradient,
    singular_values,
    stable_rank,
)
from cmr_runner.spectral.moments import moments_and_slopes
from cmr_runner.spectral.penalty import exact_penalty

from .matrices import orthonormal, with_spectrum

EPS = 1e-6
GRAMS = ("short_side", "columns")

DEGENERATE = {
    "orthogonal": orthonormal(6, 6, 0),
    "orthogonal x 0.06": 0.06 * orthonormal(6, 6, 0),
    "semi-orthogonal": orthonormal(9, 6, 0),
    "identity": torch.eye(5, dtype=torch.float64),
    "repeated largest": with_spectrum(torch.tensor([2.0, 2.0, 1.0, 0.5]), 4, 6),
    "repeated least": with_spectrum(torch.tensor([2.0, 1.0, 0.5, 0.5]), 6, 4),
    "two clusters": with_spectrum(torch.tensor([2.0, 2.0, 0.5, 0.5]), 4, 4),
    "rank one": torch.outer(torch.arange(1.0, 6), torch.arange(1.0, 5)).double(),
    "rank deficient": with_spectrum(torch.tensor([1.0, 0.5, 0.0, 0.0]), 4, 5),
    "zero": torch.zeros(4, 3, dtype=torch.float64),
    "zero column": torch.zeros(4, 1, dtype=torch.float64),
    "tiny": 1e-100 * torch.eye(3, dtype=torch.float64),
    "ones": torch.ones(3, 7, dtype=torch.float64),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("gram", GRAMS)
@pytest.mark.parametrize("case", DEGENERATE)
def test_value_and_gradient_are_finite(case, gram, dtype):
    W = DEGENERATE[case].to(dtype)
    out = exact_penalty(W, PenaltySpec(gram=gram))
    for field in (out.value, out.gradient, out.moments, out.rho_cond, out.rho_moment):
        assert torch.isfinite(field).all()
    # The bound of docs/numerics.md holds here as anywhere; float16 saturates at its largest number.
    n = W.shape[1] if gram == "columns" else min(W.shape)
    S = sum(math.exp(0.15 * (k - 3)) * k**2 for k in (3, 4, 5))
    norm = out.sigma_max.item()
    cond = (1 / norm if norm else 0) + 0.5 / math.sqrt(EPS)
    assert out.gradient.double().norm() <= (cond + 0.1 * 4 * (1 + n**-0.5) * S * norm / EPS) * 1.02


@pytest.mark.parametrize("scale", [0.06, 1.0, 2.5])
def test_equal_singular_values_have_the_moments_of_zero(scale):
    """All x are 0: s_k = cos(kπ/2). ρ_moment = w_4 = e^β at K = 5, not 0, and its gradient vanishes."""
    W = scale * torch.eye(6, dtype=torch.float64)
    s = moments(singular_values(W), (6, 6), 6, EPS)
    torch.testing.assert_close(s, torch.tensor([1.0, 0, -1, 0, 1, 0, -1], dtype=torch.float64))
    assert exact_penalty(W, PenaltySpec()).rho_moment.item() == pytest.approx(math.exp(0.15))
    assert rho_moment_gradient(W, 5, 0.15, EPS).norm() == 0


def test_orthogonal_matrix_has_proxy_near_zero_and_kappa_one():
    W = orthonormal(8, 8, 3)
    sigma = singular_values(W)
    assert condition_number(sigma).item() == pytest.approx(1, abs=1e-13)
    assert rho_cond(sigma, EPS).item() == pytest.approx(-0.5 * math.log1p(EPS), abs=1e-14)
    assert stable_rank(sigma).item() == pytest.approx(8)
    # Any extremal pair is a valid Clarke subgradient: two orthonormal rank-one terms.
    assert rho_cond_gradient(W, EPS).norm().item() == pytest.approx(math.sqrt(1 + 1 / (1 + EPS) ** 2))


@pytest.mark.parametrize("gram", GRAMS)
@pytest.mark.parametrize("sigma", [[2.0, 2.0, 1.0, 0.5], [2.0, 1.0, 0.5, 0.5], [2.0, 2.0, 0.5, 0.5], [1.0] * 4])
def test_slopes_at_repeated_edges_are_the_limit_of_simple_ones(sigma, gram):
    """So the gradient there is a Clarke subgradient: the limit from σ_1 + t, σ_r − t as t falls to 0."""
    repeated = torch.tensor(sigma, dtype=torch.float64)
    shape, eps = (4, 6), 1e-2
    slopes, apart = moments_and_slopes(repeated, shape, 5, eps, gram)[1], []
    for t in (1e-5, 1e-7):
        near = repeated.clone()
        near[0], near[-1] = near[0] + t, near[-1] - t
        apart.append((moments_and_slopes(near, shape, 5, eps, gram)[1] - slopes).abs().max().item())
    assert apart[1] < 0.02 * apart[0] + 1e-9


def test_zero_matrix_has_documented_values():
    """ρ_cond floors σ_max at finfo.tiny; the gradient is 0; κ is infinite; the stable rank is 0."""
    W = torch.zeros(4, 3, dtype=torch.float64, requires_grad=True)
    sigma = singular_values(W)
    assert rho_cond(sigma, EPS).item() == pytest.approx(math.log(torch.finfo(torch.float64).tiny) - 0.5 * math.log(EPS))
    assert condition_number(sigma).item() == math.inf
    assert stable_rank(sigma).item() == 0
    layer_penalty(W, PenaltySpec()).backward()
    assert torch.equal(W.grad, torch.zeros(4, 3, dtype=torch.float64))


def test_rank_deficiency_gives_infinite_kappa_and_no_pull_on_the_null_pair():
    """The slope at σ_min = 0 is 0/(0 + ε) = 0: ρ_cond, even in σ_min, cannot lift an exact zero."""
    W = torch.diag(torch.tensor([2.0, 1.0, 0.0], dtype=torch.float64))
    assert condition_number(singular_values(W)).item() == math.inf
    torch.testing.assert_close(
        rho_cond_gradient(W, EPS), torch.diag(torch.tensor([0.5, 0.0, 0.0], dtype=torch.float64)), rtol=0, atol=0
    )


@pytest.mark.parametrize("gram", GRAMS)
def test_at_the_floor_only_c_moves(gram):
    """d = ε: ∂s_k/∂λ_i has the terms of A_k but not of B_k. Checked by differences of the moments themselves."""
    sigma, shape, eps, h = torch.tensor([0.3, 0.25, 0.2], dtype=torch.float64), (3, 5), 0.5, 1e-6
    slopes = moments_and_slopes(sigma, shape, 5, eps, gram)[1]
    for i in range(3):
        step = torch.zeros(3, dtype=torch.float64)
        step[i] = h
        numeric = (moments(sigma + step, shape, 5, eps, gram) - moments(sigma - step, shape, 5, eps, gram)) / (2 * h)
        torch.testing.assert_close(slopes[:, i], numeric, rtol=1e-7, atol=1e-8)


def test_one_singular_value_has_no_moment_gradient_and_keeps_its_digits():
    """r = 1: 1/σ − σ/(σ² + ε) = ε/(σ(σ² + ε)), which float32 could not tell from 0 if it subtracted."""
    for shape in ((1, 1), (1, 5), (5, 1)):
        W = torch.full(shape, 3.0)
        sigma = 3 * math.sqrt(W.numel())
        assert rho_moment_gradient(W, 5, 0.15, EPS).norm() == 0
        assert rho_cond_gradient(W, EPS).norm().item() == pytest.approx(EPS / (sigma * (sigma**2 + EPS)), rel=1e-5)


def test_float16_gradient_saturates_rather_than_overflows():
    """Singular values one float16 apart put d near ε and slopes past float16's 65504."""
    W = torch.diag(torch.tensor([2**-4, 2**-4, 2**-4, 2**-4 - 2**-15])).half()
    in_float32 = rho_moment_gradient(W.float(), 5, 0.15, EPS)
    assert in_float32.abs().max() > torch.finfo(torch.float16).max
    got = rho_moment_gradient(W, 5, 0.15, EPS)
    assert got.dtype == torch.float16
    assert got.abs().max() == torch.finfo(torch.float16).max
    assert torch.isfinite(exact_penalty(W, PenaltySpec(alpha2=1.0)).gradient).all()


def test_moment_gradient_of_an_orthogonal_float32_start_is_rounding():
    """d = ε there and ∇s_k of size k²σ/ε: the rounding of the entries, left in x, decides it."""
    W = (0.06 * orthonormal(64, 64, 0)).float()
    coarse, fine = rho_moment_gradient(W, 5, 0.15, EPS).double(), rho_moment_gradient(W.double(), 5, 0.15, EPS)
    exact = rho_moment_gradient(0.06 * orthonormal(64, 64, 0), 5, 0.15, EPS)
    assert fine.norm() > 1e4 * exact.norm()
    assert (coarse - fine).norm() > 0.3 * fine.norm()
