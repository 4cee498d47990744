"""Before and after LAPACK: what it is never shown, what happens when it fails, what it costs."""

import pytest
import torch
from torch.nn.utils import parametrizations

from cmr_runner.spectral import (
    DecompositionError,
    NonFiniteError,
    PenaltySpec,
    layer_penalty,
    moment_gradient,
    rho_cond_gradient,
    rho_moment_gradient,
    singular_values,
    svd,
)
from cmr_runner.spectral.engines import ExactEngine
from cmr_runner.spectral.penalty import exact_penalty

from . import reference
from .matrices import geometric, with_spectrum

LAPACK = ("svd", "svdvals", "eigh", "eigvalsh", "eig", "qr", "cholesky")
ENTRANCES = {
    "svd": svd,
    "singular_values": singular_values,
    "rho_cond_gradient": lambda W: rho_cond_gradient(W, 1e-6),
    "moment_gradient": lambda W: moment_gradient(W, 3, 1e-6),
    "rho_moment_gradient": lambda W: rho_moment_gradient(W, 5, 0.15, 1e-6),
    "layer_penalty": lambda W: layer_penalty(W, PenaltySpec()),
    "engine": lambda W: ExactEngine().penalty(W, PenaltySpec(), group="", step=0),
}


@pytest.fixture
def calls(monkeypatch):
    """The names of torch.linalg's decompositions, in the order they were called."""
    made = []

    def recording(name, real):
        def call(*args, **kwargs):
            made.append(name)
            return real(*args, **kwargs)

        return call

    for name in LAPACK:
        monkeypatch.setattr(torch.linalg, name, recording(name, getattr(torch.linalg, name)))
    return made


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("entrance", ENTRANCES)
def test_non_finite_input_is_refused_before_any_lapack_call(entrance, bad, dtype, calls):
    W = torch.ones(2, 4, 3, dtype=dtype)
    W[1, 2, 0] = bad
    with pytest.raises(NonFiniteError, match=r"\(2, 4, 3\) holds 1 entries"):
        ENTRANCES[entrance](W)
    assert calls == []


def test_opposite_infinities_do_not_hide_each_other():
    W = torch.ones(3, 3)
    W[0, 0], W[1, 1] = torch.inf, -torch.inf
    with pytest.raises(NonFiniteError, match="holds 2 entries"):
        svd(W)


def test_finite_entries_whose_sum_overflows_are_accepted():
    W = torch.full((2, 2), 2e38)
    assert singular_values(W)[0].item() == pytest.approx(4e38)


def failing_svd(monkeypatch, fails):
    """torch.linalg.svd that does not converge where fails(A) holds; returns the dtypes it was called with."""
    real, dtypes = torch.linalg.svd, []

    def svd_(A, *args, **kwargs):
        dtypes.append(A.dtype)
        if fails(A):
            raise torch.linalg.LinAlgError("failed to converge")
        return real(A, *args, **kwargs)

    monkeypatch.setattr(torch.linalg, "svd", svd_)
    return dtypes


def test_non_convergence_is_retried_in_float64(monkeypatch):
    W, spec = with_spectrum(geometric(10, 4), 5, 4).float(), PenaltySpec()
    truth = exact_penalty(W, spec)
    dtypes = failing_svd(monkeypatch, lambda A: A.dtype == torch.float32)
    got = exact_penalty(W, spec)
    assert dtypes == [torch.float32, torch.float64]
    assert got.gradient.dtype == torch.float32
    torch.testing.assert_close(got.gradient, truth.gradient, rtol=1e-4, atol=1e-4)


def test_non_convergence_in_float64_is_reported_with_the_shape(monkeypatch):
    dtypes = failing_svd(monkeypatch, lambda A: True)
    with pytest.raises(DecompositionError, match=r"\(5, 4\) in torch.float32 or float64"):
        layer_penalty(torch.ones(5, 4), PenaltySpec())
    assert dtypes == [torch.float32, torch.float64]


def test_singular_values_report_non_convergence_too(monkeypatch):
    def svdvals(A):
        raise torch.linalg.LinAlgError("failed to converge")

    monkeypatch.setattr(torch.linalg, "svdvals", svdvals)
    with pytest.raises(DecompositionError, match=r"\(3, 3\)"):
        singular_values(torch.eye(3))


def test_engine_leaves_out_the_matrix_that_fails_and_counts_it(monkeypatch):
    torch.manual_seed(0)
    W, spec = torch.randn(3, 4, 4), PenaltySpec()
    truth = exact_penalty(W, spec)
    marked = W[1, 0, 0].item()
    failing_svd(monkeypatch, lambda A: bool((A.reshape(-1, 4, 4)[:, 0, 0] == marked).any()))
    got = ExactEngine().penalty(W, spec, group="", step=0)
    assert got.skipped == 1
    assert torch.equal(got.gradient[1], torch.zeros(4, 4))
    assert got.value[1] == 0
    assert torch.isnan(got.rho_cond[1])
    torch.testing.assert_close(got.gradient[[0, 2]], truth.gradient[[0, 2]])


def test_one_decomposition_serves_value_gradient_and_statistics(calls):
    W = torch.randn(3, 6, 4, requires_grad=True)
    layer_penalty(W, PenaltySpec()).sum().backward()
    assert calls == ["svd"]
    ExactEngine().penalty(W, PenaltySpec(), group="", step=0)
    assert calls == ["svd"] * 2


def test_autograd_never_sees_a_decomposition():
    W = torch.randn(4, 4, requires_grad=True)
    value = layer_penalty(2 * W, PenaltySpec())
    names, nodes = [], [value.grad_fn]
    while nodes:
        node = nodes.pop()
        names.append(node.name().split("::")[-1])
        nodes += [parent for parent, _ in node.next_functions if parent is not None]
    assert names == ["_WithClosedFormGradientBackward", "MulBackward0", "AccumulateGrad"]


@pytest.mark.parametrize("parametrisation", [parametrizations.spectral_norm, parametrizations.weight_norm])
def test_gradient_passes_through_parametrisations(parametrisation):
    """The penalty is of the effective weight: the twin through the same parametrisation gives the same .grad."""
    torch.manual_seed(0)
    layer, spec = parametrisation(torch.nn.Linear(5, 4, dtype=torch.float64)).eval(), PenaltySpec()
    layer_penalty(layer.weight, spec).backward()
    trained = [p for p in layer.parametrizations.parameters() if p.grad is not None]
    got = [p.grad.clone() for p in trained]
    layer.zero_grad()
    reference.penalty(layer.weight, spec).backward()
    assert trained
    for mine, p in zip(got, trained, strict=True):
        torch.testing.assert_close(mine, p.grad, rtol=1e-9, atol=1e-9 * p.grad.abs().max().item())


def test_chain_rule_scales_with_the_incoming_gradient():
    torch.manual_seed(0)
    W = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    weights = torch.tensor([2.0, -5.0], dtype=torch.float64)
    (layer_penalty(W, PenaltySpec()) * weights).sum().backward()
    torch.testing.assert_close(W.grad, weights[:, None, None] * exact_penalty(W, PenaltySpec()).gradient)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32_and_returned_in_its_own(dtype, monkeypatch):
    W, spec = with_spectrum(geometric(4, 5), 6, 5).to(dtype), PenaltySpec()
    dtypes = failing_svd(monkeypatch, lambda A: False)
    got, truth = exact_penalty(W, spec), exact_penalty(W.float(), spec)
    assert dtypes == [torch.float32] * 2
    for name in ("value", "gradient", "moments", "rho_cond", "rho_moment", "sigma_max", "sigma_min"):
        assert getattr(got, name).dtype == dtype
        assert torch.equal(getattr(got, name), getattr(truth, name).to(dtype))
    A = W.clone().requires_grad_()
    layer_penalty(A, spec).backward()
    assert A.grad.dtype == dtype
    assert torch.equal(A.grad, got.gradient)


def test_autocast_does_not_reach_the_gradient():
    W, spec = with_spectrum(geometric(4, 5), 6, 5).float(), PenaltySpec()
    outside = exact_penalty(W, spec).gradient
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(exact_penalty(W, spec).gradient, outside)


def test_singular_values_are_float64_whatever_comes_in():
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        W = torch.randn(3, 4, 6).to(dtype)
        sigma = singular_values(W)
        assert sigma.dtype == torch.float64
        assert sigma.shape == (3, 4)
        torch.testing.assert_close(sigma, torch.linalg.svdvals(W.double()))
