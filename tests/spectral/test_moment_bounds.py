"""How large the gradient of ρ_moment can be. docs/numerics.md derives the bounds; the paper's need correcting.

With S = Σ_{k=3..K} w_k k² and n the size of the Gram matrix, for every W:

    ‖∇ρ_moment‖_F <= 4 (1 + 1/√n) S ‖W‖₂ / d                     (always, d = max(half-width, ε))
                  <= 8 (1 + 1/√n) S / (θ ‖W‖₂)                   where λ_max − λ_min >= θ λ_max
                  <= 4 (1 + 1/√n) S ‖W‖₂ / ε                     always
"""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cmr_runner.spectral import moment_gradient, moment_weights, rho_moment_gradient
from cmr_runner.spectral.moments import chebyshev, gram_spectrum, moments_and_slopes, rho_moment_slopes

from .matrices import matrices, spectra, with_spectrum

EPS = 1e-6


def S(K, beta):
    return sum(math.exp(beta * (k - 3)) * k**2 for k in range(3, K + 1))


def gradient_norm(sigma, n, K, beta=0.0, eps=EPS, gram="short_side"):
    """‖∇ρ_moment‖_F of any matrix with these singular values: ‖U diag(slopes) Vᵀ‖_F is the norm of the slopes."""
    s, slopes = moments_and_slopes(sigma, (len(sigma), n), K, eps, gram)
    return rho_moment_slopes(s, slopes, moment_weights(K, beta)).norm().item()


def pressed_against_the_top(n, K, spread=1.0, top=1.0):
    """σ of: λ_max = top, n − 2 eigenvalues just under it, one at (1 − spread)·top: s_k and T_k' near their largest."""
    lam = torch.full((n,), 1 - 1e-4 * spread / K**2, dtype=torch.float64)
    lam[0], lam[-1] = 1, 1 - spread
    return (top * lam).sqrt()


@given(
    sigma=spectra(),
    extra=st.integers(0, 4),
    K=st.integers(3, 12),
    beta=st.floats(-1, 1),
    log_eps=st.floats(-9, 0),
    gram=st.sampled_from(["short_side", "columns"]),
)
def test_moment_gradient_corrected_bounds_hold(sigma, extra, K, beta, log_eps, gram):
    eps, r = 10**log_eps, len(sigma)
    n = r + extra if gram == "columns" else r
    got, norm = gradient_norm(sigma, r + extra, K, beta, eps, gram), sigma[0].item()
    factor = (1 + 1 / math.sqrt(n)) * S(K, beta) * (1 + 1e-9)
    lam_min = sigma[-1].item() ** 2 if n == r else 0.0
    theta = (norm**2 - lam_min) / norm**2 if norm else 0.0
    assert got <= 4 * factor * norm / eps
    if theta > 0:
        assert got <= 8 * factor / (theta * norm)


@given(W=matrices(), K=st.integers(3, 8))
def test_moment_gradient_bound_of_each_moment_on_matrices(W, K):
    """‖∇s_k‖_F <= 2 k² (1 + 1/√n) ‖W‖₂/d, and of ρ_moment, with the gradients as matrices."""
    n, norm = min(W.shape), torch.linalg.matrix_norm(W, 2).item()
    sigma = torch.linalg.svdvals(W)
    d = gram_spectrum(sigma, tuple(W.shape), EPS, "short_side").d.item()
    factor = (1 + 1 / math.sqrt(n)) * norm / d * (1 + 1e-9)
    for k in range(1, K + 1):
        assert moment_gradient(W, k, EPS).norm() <= 2 * k**2 * factor
    assert rho_moment_gradient(W, K, 0.15, EPS).norm() <= 4 * S(K, 0.15) * factor


def test_moment_gradient_corrected_bound_under_spread_is_sharp():
    """No smaller constant serves: this spectrum reaches 96 % of 8 S/(θ‖W‖₂) as n grows."""
    for theta in (1.0, 0.1):
        sigma = pressed_against_the_top(400, 5, theta, top=4.0)
        assert gradient_norm(sigma, 400, 5) >= 0.96 * 8 * S(5, 0) / (theta * sigma[0].item())


def test_moment_gradient_corrected_bound_without_spread_is_sharp():
    """Half-width just over ε: 96 % of 4 S ‖W‖₂/ε."""
    eps = 1e-3
    sigma = pressed_against_the_top(400, 5, spread=2 * eps * (1 + 1e-6))
    assert gradient_norm(sigma, 400, 5, eps=eps) >= 0.96 * 4 * S(5, 0) / eps


@given(sigma=spectra(min_size=2), scale=st.floats(0.1, 10))
def test_moment_gradient_scales_exactly_as_one_over_norm(sigma, scale):
    """Off the floor ρ_moment does not change with the scale of W, so its whole gradient goes as 1/‖W‖₂.

    There is no remainder O(‖W‖₂⁻³); and ⟨W, ∇ρ_moment⟩ = 0 (Euler), which needs the terms through c and d.
    """
    r = len(sigma)
    sigma = sigma / sigma[0].clamp_min(1e-9)
    sigma[0], sigma[-1] = 1.0, 0.3
    sigma = sigma.clamp(0.3, 1.0).sort(descending=True).values
    eps = 1e-9
    for gram in ("short_side", "columns"):
        norms = [gradient_norm(t * sigma, r + 1, 6, eps=eps, gram=gram) * t for t in (1.0, scale)]
        assert norms[0] == pytest.approx(norms[1], rel=1e-9, abs=1e-12)
        _, slopes = moments_and_slopes(sigma, (r, r + 1), 6, eps, gram)
        assert ((slopes @ sigma).abs() <= 1e-12 * (1 + slopes.abs().max())).all()


# The paper's lemma as printed


def terms(sigma, k, eps=EPS):
    """‖main term‖ and ‖terms through c and d‖ of ∇s_k, from the slopes."""
    n = len(sigma)
    spectrum = gram_spectrum(sigma, (n, n), eps, "short_side")
    main = 2 * sigma / (n * spectrum.d) * chebyshev(spectrum.x, k)[1][k]
    whole = moments_and_slopes(sigma, (n, n), k, eps)[1][k]
    return main.norm().item(), (whole - main).norm().item()


def test_moment_gradient_as_printed_terms_through_c_and_d_are_not_of_lower_order():
    """Printed: O(‖W‖₂⁻³). True: they keep their ratio to the main term at every scale, and can be √n times larger."""
    n = 100
    sigma = pressed_against_the_top(n, 5)
    ratios = []
    for scale in (1.0, 10.0, 100.0, 1000.0):
        main, through_edges = terms(scale * sigma, 3)
        ratios.append(through_edges / main)
    assert ratios == pytest.approx([ratios[0]] * 4, rel=1e-9)
    assert ratios[0] == pytest.approx(math.sqrt(n), rel=0.05)


def test_moment_gradient_as_printed_bound_of_one_moment_fails():
    """Printed: ‖∇s_k‖_F <= 2k²‖W‖₂/(√n d), up to lower order. It is exceeded √n-fold, at any scale."""
    for n in (16, 64, 256):
        for scale in (1.0, 1e3):
            sigma = scale * pressed_against_the_top(n, 5)
            W = with_spectrum(sigma, n, n)
            d = (sigma[0] ** 2 - sigma[-1] ** 2).item() / 2
            printed = 2 * 9 * scale / (math.sqrt(n) * d)
            assert moment_gradient(W, 3, EPS).norm() > 0.8 * math.sqrt(n) * printed


def test_moment_gradient_as_printed_linear_growth_in_K_fails():
    """Printed: C·K/‖W‖₂. With all w_k = 1 the gradient of this spectrum grows as K³, not as K."""
    per_K = [gradient_norm(pressed_against_the_top(200, 40), 200, K) / K for K in (5, 10, 20, 40)]
    for smaller, larger in pairwise(per_K):
        assert larger > 3 * smaller


def test_moment_gradient_as_printed_decay_in_width_at_the_floor_fails():
    """Printed: C'K‖W‖₂/(√n ε). With d = ε the gradient does not fall with n at all."""
    eps = 1e-3
    norms = [gradient_norm(pressed_against_the_top(n, 5, spread=1.9 * eps), n, 5, eps=eps) for n in (25, 100, 400)]
    assert norms[0] <= norms[1] <= norms[2]
