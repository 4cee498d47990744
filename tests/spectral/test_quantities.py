"""The small parts: matrix view, κ, stable rank, Chebyshev polynomials, the specification, the twin itself."""

import math
import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cmr_runner.spectral import (
    PenaltySpec,
    as_matrix,
    chebyshev,
    condition_number,
    layer_penalty,
    moment_weights,
    moments,
    singular_values,
    stable_rank,
)

from . import reference
from .matrices import geometric, matrices, with_spectrum


def test_two_dimensional_weight_is_its_own_matrix():
    W = torch.randn(3, 4)
    assert as_matrix(W) is W


@pytest.mark.parametrize("kernel", [(3,), (3, 5), (2, 3, 2)])
def test_conv_weight_is_flattened_to_out_by_the_rest(kernel):
    weight = torch.randn(6, 4, *kernel)
    W = as_matrix(weight)
    assert W.shape == (6, 4 * math.prod(kernel))
    assert W.data_ptr() == weight.data_ptr()
    assert torch.equal(W[2], weight[2].flatten())


def test_conv_matrix_maps_patches_as_the_convolution_does():
    conv = torch.nn.Conv2d(2, 3, 2, bias=False)
    patch = torch.randn(1, 2, 2, 2)
    torch.testing.assert_close(as_matrix(conv.weight) @ patch.flatten(), conv(patch).flatten())


def test_gradient_flows_back_into_the_conv_weight():
    weight = torch.randn(4, 2, 3, 3, dtype=torch.float64, requires_grad=True)
    layer_penalty(as_matrix(weight), PenaltySpec()).backward()
    expected = reference.gradient(weight.detach().reshape(4, 18), PenaltySpec())
    torch.testing.assert_close(weight.grad.reshape(4, 18), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("shape", [(), (5,)])
def test_vectors_and_scalars_are_refused(shape):
    with pytest.raises(ValueError, match="at least 2 dimensions"):
        as_matrix(torch.ones(shape))


def test_weight_without_entries_is_refused():
    with pytest.raises(ValueError, match="needs entries"):
        as_matrix(torch.ones(0, 3))


@pytest.mark.parametrize("kappa", [1.0, 10.0, 1e4, 1e8])
@pytest.mark.parametrize("shape", [(7, 7), (9, 5), (5, 9)])
def test_kappa_is_the_one_the_matrix_was_made_with(kappa, shape):
    W = with_spectrum(geometric(kappa, min(shape), 3.0), *shape)
    tolerance = 16 * torch.finfo(torch.float64).eps * kappa
    assert condition_number(singular_values(W)).item() == pytest.approx(kappa, rel=tolerance)


@given(W=matrices())
def test_stable_rank_is_between_one_and_the_rank(W):
    sigma = singular_values(W)
    rank = stable_rank(sigma).item()
    if sigma[0] == 0:
        assert rank == 0
        return
    assert 1 <= rank <= len(sigma) * (1 + 1e-12)
    assert rank == pytest.approx((W.norm() ** 2 / torch.linalg.matrix_norm(W, 2) ** 2).item())


def test_statistics_survive_extreme_scales():
    for scale in (1e-300, 1e300):
        sigma = scale * torch.tensor([4.0, 2.0], dtype=torch.float64)
        assert condition_number(sigma).item() == pytest.approx(2)
        assert stable_rank(sigma).item() == pytest.approx(1.25)


@pytest.mark.parametrize("K", [0, 1, 2, 3, 8])
def test_chebyshev_polynomials_and_slopes_are_numpys(K):
    x = torch.linspace(-1, 1, 41, dtype=torch.float64)
    T, slopes = chebyshev(x, K)
    assert T.shape == slopes.shape == (K + 1, 41)
    for k in range(K + 1):
        series = np.polynomial.chebyshev.Chebyshev.basis(k)
        np.testing.assert_allclose(T[k], series(x.numpy()), atol=1e-13)
        np.testing.assert_allclose(slopes[k], series.deriv()(x.numpy()) if k else 0 * x, atol=1e-11)


@given(x=st.floats(-1, 1), k=st.integers(0, 40))
def test_chebyshev_bounds_used_in_the_proofs(x, k):
    T, slopes = chebyshev(torch.tensor(x, dtype=torch.float64), k)
    assert abs(T[k].item()) <= 1 + 1e-10
    assert abs(slopes[k].item()) <= k**2 * (1 + 1e-10)


def test_twin_agrees_with_itself_at_the_seam():
    x = torch.tensor([-1 + reference.EDGE, 1 - reference.EDGE, 0.3, -0.7], dtype=torch.float64).requires_grad_()
    for k in range(9):
        both = torch.cos(k * torch.arccos(x)), reference.polynomial(x, k)
        slopes = [torch.autograd.grad(T.sum(), x, retain_graph=True)[0] for T in both if T.requires_grad]
        torch.testing.assert_close(both[0], both[1], rtol=0, atol=1e-12)
        if len(slopes) == 2:
            torch.testing.assert_close(slopes[0], slopes[1], rtol=0, atol=1e-10)


def test_twin_has_the_right_slope_at_the_edges():
    """T_k'(±1) = (±1)^(k−1) k²."""
    for k in range(1, 9):
        x = torch.tensor([1.0, -1.0], dtype=torch.float64, requires_grad=True)
        (slope,) = torch.autograd.grad(reference.chebyshev(x, k).sum(), x)
        assert slope.tolist() == pytest.approx([k**2, (-1) ** (k - 1) * k**2])


def test_moment_weights_are_exponential_from_three():
    assert moment_weights(5, 0.15).tolist() == pytest.approx([1, math.exp(0.15), math.exp(0.3)])
    assert moment_weights(3, 7.0).tolist() == [1]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("K", 2),
        ("K", 4.5),
        ("alpha1", -1.0),
        ("alpha2", math.nan),
        ("alpha1", math.inf),
        ("beta", math.nan),
        ("eps", 0.0),
        ("eps", math.nan),
        ("eps", math.inf),
        ("gram", "rows"),
        ("weights", torch.ones(4)),
    ],
)
def test_specification_refuses_by_name_and_value(key, value):
    got = re.escape("(4,)" if key == "weights" else repr(value))
    with pytest.raises(ValueError, match=f"^{key} must be .*, got {got}"):
        PenaltySpec(**{key: value})


def test_unknown_gram_reading_is_refused_everywhere():
    with pytest.raises(ValueError, match="gram must be short_side or columns, got rows"):
        moments(torch.ones(3), (3, 3), 5, 1e-6, "rows")
