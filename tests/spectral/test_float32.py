"""Where float32 stops resolving σ_min. Derivation in docs/numerics.md.

An SVD in precision eps has |δσ_min| <= p·eps·σ_max, p = max(m, n), in practice about eps·σ_max. Relative to σ_min that
is eps·κ: a tenth at κ ≈ 1e6, noise well past 1/eps ≈ 8e6. Of a Gram matrix it is eps·κ²: noise past 1/√eps ≈ 3e3.
The matrices here are the hard case, one small singular value under a flat top.
"""

from statistics import median

import pytest
import torch

from cmr_runner.spectral import condition_number, singular_values, svd

from .matrices import orthonormal, with_spectrum

EPS32 = torch.finfo(torch.float32).eps
SIZE, SEEDS = 16, range(8)


def stored(kappa, seed):
    """A float32 matrix made with σ = 1, ..., 1, 1/κ."""
    sigma = torch.ones(SIZE, dtype=torch.float64)
    sigma[-1] = 1 / kappa
    return with_spectrum(sigma, SIZE, SIZE, seed).float()


def reported_kappa(kappa):
    return [condition_number(singular_values(stored(kappa, seed))).item() for seed in SEEDS]


def errors_of_svd(kappa):
    """Relative errors of σ_min by an SVD in float32, against an SVD of the same numbers in float64."""
    return [relative_error(W, svd(W)[1][-1].item()) for W in (stored(kappa, seed) for seed in SEEDS)]


def errors_of_gram(kappa):
    """The same by eigenvalues of a float32 Gram matrix."""
    matrices = [stored(kappa, seed) for seed in SEEDS]
    return [relative_error(W, max(torch.linalg.eigvalsh(W.T @ W)[0].item(), 0) ** 0.5) for W in matrices]


def relative_error(W, sigma_min):
    truth = singular_values(W)[-1].item()
    return abs(sigma_min - truth) / truth


@pytest.mark.parametrize("kappa", [1e1, 1e3, 1e5, 1e6, 1e7])
def test_svd_in_float32_is_good_to_eps_kappa(kappa):
    assert max(errors_of_svd(kappa)) <= SIZE * EPS32 * max(reported_kappa(kappa))


def test_svd_in_float32_resolves_sigma_min_to_a_tenth_at_kappa_1e6():
    assert max(errors_of_svd(1e6)) < 0.1


def test_svd_in_float32_has_lost_sigma_min_at_kappa_1e8():
    assert median(errors_of_svd(1e8)) > 0.5


def test_float32_entries_carry_kappa_up_to_1e6_and_no_longer_at_1e9():
    """Rounding W to float32 moves σ_min by eps·σ_max too: beyond, no decomposition can report the κ that was meant."""
    assert reported_kappa(1e6) == pytest.approx([1e6] * len(SEEDS), rel=0.05)
    assert median(reported_kappa(1e9)) < 0.5e9


def test_gram_in_float32_has_lost_sigma_min_where_the_svd_has_three_digits():
    """κ = 1e4, just past 1/√eps: nothing reported may come from a float32 Gram matrix."""
    assert max(errors_of_svd(1e4)) < 1e-3
    assert min(errors_of_gram(1e4)) > 0.5


@pytest.mark.parametrize("kappa", [3.9e3, 1e5])
def test_float64_reporting_resolves_the_papers_stress_level_in_float32_weights(kappa):
    assert reported_kappa(kappa) == pytest.approx([kappa] * len(SEEDS), rel=1e-2)


def test_orthogonal_float32_weights_report_kappa_one():
    W = (0.06 * orthonormal(64, 64, 0)).float()
    assert condition_number(singular_values(W)).item() == pytest.approx(1, abs=64 * EPS32)
