"""The paper's claims on one layer: descent, log κ, invariance, the gradient of ρ_cond, the first moments.

Its lemma on moment gradients is in test_moment_bounds.py, its claims on networks are in test_network_bounds.py.
"""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cmr_runner.spectral import (
    PenaltySpec,
    condition_number,
    layer_penalty,
    moments,
    rho_cond,
    rho_cond_gradient,
    rho_moment,
    singular_values,
)
from cmr_runner.spectral.moments import gram_spectrum, moment_weights

from .matrices import geometric, matrices, orthonormal, spectra, with_spectrum

EPS = 1e-6
CONDITION_ONLY = PenaltySpec(alpha1=1.0, alpha2=0.0)


def proxy(W):
    return rho_cond(singular_values(W), EPS)


# the descent identity


def flow(W, step, steps, eta=1.0):
    """Explicit Euler on Ẇ = −η∇ρ_cond; the drop of ρ_cond and the integral of η‖∇ρ_cond‖² along the way."""
    start, dissipated = proxy(W), 0.0
    for _ in range(steps):
        gradient = rho_cond_gradient(W, EPS)
        dissipated += step * eta * gradient.square().sum().item()
        W = W - step * eta * gradient
    return (start - proxy(W)).item(), dissipated, W


@pytest.mark.parametrize("eta", [0.5, 2.0])
def test_descent_identity_along_the_integrated_flow(eta):
    """ρ(0) − ρ(t) = ∫ η‖∇ρ‖², with an error of Euler's first order: halving the step halves it."""
    W = with_spectrum(torch.tensor([3.0, 2.0, 1.5, 1.0, 0.5]), 6, 5)
    errors = []
    for steps in (50, 100, 200, 400):
        drop, dissipated, _ = flow(W, 0.2 / steps / eta, steps, eta)
        errors.append(abs(drop - dissipated))
    assert drop == pytest.approx(dissipated, rel=2e-3)
    for coarse, fine in pairwise(errors):
        assert coarse / fine == pytest.approx(2, rel=0.1)


def test_descent_flow_follows_its_exact_solution():
    """Off the edges nothing moves; σ_max² falls as σ₀² − 2ηt, and ½σ_min² + ε log σ_min grows as ηt."""
    start, t = torch.tensor([3.0, 2.0, 1.5, 1.0, 0.5], dtype=torch.float64), 0.2
    *_, W = flow(with_spectrum(start, 6, 5), t / 500, 500)
    sigma = singular_values(W)
    torch.testing.assert_close(sigma[1:-1], start[1:-1])
    assert sigma[0].item() == pytest.approx(math.sqrt(9 - 2 * t), rel=1e-4)
    grown = 0.5 * sigma[-1] ** 2 + EPS * sigma[-1].log() - (0.5 * 0.25 + EPS * math.log(0.5))
    assert grown.item() == pytest.approx(t, rel=5e-3)


def test_descent_derivative_along_minus_the_gradient_is_minus_its_square():
    W = with_spectrum(geometric(30, 6), 6, 8)
    gradient, h = rho_cond_gradient(W, EPS), 1e-7
    slope = (proxy(W - h * gradient) - proxy(W + h * gradient)) / (2 * h)
    assert slope.item() == pytest.approx(-gradient.square().sum().item(), rel=1e-5)


def descend(optimizer, steps, **options):
    W = torch.nn.Parameter(with_spectrum(geometric(300, 8), 8, 8))
    step = optimizer([W], **options)
    path = [proxy(W).item()]
    for _ in range(steps):
        step.zero_grad()
        layer_penalty(W, CONDITION_ONLY).backward()
        step.step()
        path.append(proxy(W).item())
    return torch.tensor(path)


def test_descent_under_sgd():
    """Every small step descends, and a training-sized rate carries ρ_cond to less than half."""
    path = descend(torch.optim.SGD, 100, lr=1e-5)
    assert (path.diff() < 0).all()
    path = descend(torch.optim.SGD, 200, lr=2e-3)
    assert path[-1] < 0.5 * path[0]


def test_descent_under_adam():
    """A trend, as the paper says, not every step: each window's mean is below the one before it."""
    path = descend(torch.optim.Adam, 200, lr=2e-3)
    assert path[-1] < 0.5 * path[0]
    windows = path[1:].reshape(8, 25).mean(1)
    assert (windows.diff() < 0).all()


# ρ_cond and log κ


@given(sigma=spectra(), eps=st.floats(1e-12, 1.0))
def test_log_kappa_identity_to_machine_precision(sigma, eps):
    if sigma[-1] <= 1e-100:
        sigma = sigma + 1e-3  # κ is infinite at σ_min = 0, and so is the right-hand side
    log_kappa = condition_number(sigma).log()
    right = rho_cond(sigma, eps) + 0.5 * torch.log1p(eps / sigma[-1] ** 2)
    terms = sigma[0].log().abs() + (sigma[-1] ** 2 + eps).log().abs() + sigma[-1].log().abs() + 1
    assert (log_kappa - right).abs() <= 8 * torch.finfo(torch.float64).eps * terms


def test_log_kappa_identity_alone_does_not_make_kappa_follow_the_proxy():
    """The paper's corollary argues from the identity; but a fall of ρ_cond can go with a rise of κ."""
    before, after = torch.tensor([[1e-2, 1e-3], [1e-3, 0.5e-4]], dtype=torch.float64)
    assert rho_cond(after, EPS) < rho_cond(before, EPS)
    assert condition_number(after) > condition_number(before)


@given(kappa=st.floats(5, 1e3), scale=st.floats(1e-3, 1e3), r=st.integers(2, 6), seed=st.integers(0, 1000))
def test_log_kappa_does_fall_along_the_flow_of_the_proxy(kappa, scale, r, seed):
    """What the corollary should have said: d(log κ)/dt = −η(1/σ_max² + 1/(σ_min² + ε)) where both edges are simple."""
    sigma = geometric(kappa, r, scale)
    W = with_spectrum(sigma, r, r + 1, seed)
    eps = EPS * sigma[0].item() ** 2
    h = 1e-5 * sigma[-1].item() ** 2
    moved = condition_number(singular_values(W - h * rho_cond_gradient(W, eps))).log()
    rate = (moved - condition_number(sigma).log()) / h
    assert rate.item() == pytest.approx(-(sigma[0] ** -2 + 1 / (sigma[-1] ** 2 + eps)).item(), rel=1e-3)


# orthogonal invariance


@given(W=matrices(), seed=st.integers(0, 10**6), gram=st.sampled_from(["short_side", "columns"]))
def test_invariance_under_orthogonal_factors(W, seed, gram):
    m, n = W.shape
    rotated = orthonormal(m, m, seed) @ W @ orthonormal(n, n, seed + 1)
    before, after = singular_values(W), singular_values(rotated)
    top = before[0].item()
    eps = 1e-2 * top**2 + 1e-12
    noise = 16 * torch.finfo(torch.float64).eps
    assert (rho_cond(before, eps) - rho_cond(after, eps)).abs() <= 100 * noise
    K, w = 6, moment_weights(6, 0.15)
    values = [rho_moment(moments(s, (m, n), K, eps, gram), w) for s in (before, after)]
    # |∂ρ/∂λ| <= 4 K² Σw_k / d and δλ <= noise·λ_max <= 100·noise·d.
    assert (values[0] - values[1]).abs() <= 400 * noise * K**2 * w.sum()


@given(m=st.integers(2, 8), n=st.integers(2, 8), scale=st.floats(1e-3, 1e3), seed=st.integers(0, 10**6))
def test_invariance_gradient_turns_with_the_matrix(m, n, scale, seed):
    """∇ρ(QWR) = Q ∇ρ(W) R: what invariance means for a step."""
    W = with_spectrum(geometric(20, min(m, n), scale), m, n, seed)
    Q, R = orthonormal(m, m, seed), orthonormal(n, n, seed + 1)
    spec = PenaltySpec(eps=1e-3 * scale**2)
    gradients = []
    for A in (W, Q @ W @ R):
        A = A.detach().requires_grad_()
        gradients.append(torch.autograd.grad(layer_penalty(A, spec), A)[0])
    assert (Q @ gradients[0] @ R - gradients[1]).norm() <= 1e-10 * gradients[0].norm()


# the closed form


@given(W=matrices(), eps=st.floats(1e-10, 1e-2))
def test_condition_gradient_frobenius_norm_formula(W, eps):
    """Also where an edge value is repeated: any pair carries the slope and has norm 1."""
    sigma = singular_values(W)
    if sigma[0] < 1e-12:
        return
    got = rho_cond_gradient(W, eps).norm().item()
    up, down = 1 / sigma[0].item(), (sigma[-1] / (sigma[-1] ** 2 + eps)).item()
    uncertain = 16 * torch.finfo(torch.float64).eps * sigma[0].item() / eps  # δσ_min through a slope of at most 1/ε
    expected = math.hypot(up, down) if len(sigma) > 1 else eps / (sigma[0] ** 3 + eps * sigma[0]).item()
    assert got == pytest.approx(expected, rel=1e-12, abs=uncertain)


def test_condition_gradient_printed_norm_formula_needs_two_singular_values():
    """For r = 1 the two terms of the gradient fall on one pair and cancel; the paper's sum of squares is far off."""
    W = torch.tensor([[3.0, 4.0]], dtype=torch.float64)
    sigma = 5.0
    printed = math.hypot(1 / sigma, sigma / (sigma**2 + EPS))
    assert rho_cond_gradient(W, EPS).norm().item() == pytest.approx(EPS / (sigma * (sigma**2 + EPS)), rel=1e-12)
    assert printed > 1e6 * rho_cond_gradient(W, EPS).norm().item()


def test_condition_gradient_is_the_two_rank_one_terms():
    sigma = torch.tensor([2.0, 1.2, 0.3], dtype=torch.float64)
    U, V = orthonormal(4, 3, 0), orthonormal(3, 3, 1)
    expected = torch.outer(U[:, 0], V[:, 0]) / 2 - 0.3 / (0.09 + EPS) * torch.outer(U[:, 2], V[:, 2])
    torch.testing.assert_close(rho_cond_gradient((U * sigma) @ V.T, EPS), expected, rtol=1e-12, atol=1e-13)


# what s₀, s₁ and s₂ are


@given(sigma=spectra(), extra=st.integers(0, 3), gram=st.sampled_from(["short_side", "columns"]))
def test_first_moments_are_mass_mean_and_variance(sigma, extra, gram):
    r = len(sigma)
    shape = (r, r + extra)
    s = moments(sigma, shape, 2, EPS, gram)
    lam = sigma**2
    if gram == "columns":
        lam = torch.cat([lam, torch.zeros(extra, dtype=torch.float64)])
    c, d = (lam[0] + lam[-1]) / 2, max((lam[0] - lam[-1]) / 2, torch.tensor(EPS, dtype=torch.float64))
    # Subtracting c from λ leaves an error of eps·λ_max/d in x.
    tolerance = 8 * torch.finfo(torch.float64).eps * (1 + (lam[0] / d).item())
    assert s[0].item() == 1
    assert s[1].item() == pytest.approx(((lam.mean() - c) / d).item(), abs=tolerance)
    variance = ((lam - lam.mean()) / d).square().mean().item()
    assert ((s[2] + 1) / 2 - s[1] ** 2).item() == pytest.approx(variance, abs=4 * tolerance)


@given(sigma=spectra())
def test_moments_never_leave_the_unit_interval(sigma):
    assert (moments(sigma, (len(sigma), len(sigma)), 12, EPS).abs() <= 1 + 1e-12).all()
    x = gram_spectrum(sigma, (len(sigma), len(sigma)), EPS, "short_side").x
    assert (x.abs() <= 1).all()
