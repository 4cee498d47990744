"""Each penalty's closed-form gradient is that of its definition, written out here for autograd."""

import pytest
import torch
from torch import Tensor, nn

from cmr_runner.regularizers import CMR, L2, SRIP, AlmostIsometry, SigmaOne, SoftOrthogonality, SpectralPenalty
from cmr_runner.regularizers.gradient_penalty import GradientPenalty
from cmr_runner.spectral import layer_penalty

SHAPES = [(6, 6), (5, 9), (9, 5)]


def short_gram(W: Tensor) -> Tensor:
    return W @ W.mT if W.shape[-2] < W.shape[-1] else W.mT @ W


def deviation(W: Tensor) -> Tensor:
    gram = short_gram(W)
    return gram - torch.eye(gram.shape[-1], dtype=W.dtype)


def sigma_max(W: Tensor) -> Tensor:
    return torch.linalg.matrix_norm(W, 2)


def almost_isometry(W: Tensor) -> Tensor:
    return sigma_max(W) ** 2 / 2 - torch.linalg.matrix_norm(W) ** 2 / (2 * min(W.shape[-2:]))


MANY = {"iterations": 400}
CASES = {
    "l2": (L2, {}, lambda W: (W**2).sum((-2, -1)) / 2),
    "spectral_penalty": (SpectralPenalty, MANY, lambda W: sigma_max(W) ** 2 / 2),
    "sigma_one": (SigmaOne, MANY, lambda W: (sigma_max(W) ** 2 - 1) ** 2),
    "sigma_one_k3": (SigmaOne, {**MANY, "k": 3}, lambda W: (sigma_max(W) ** 3 - 1) ** 2),
    "almost_isometry": (AlmostIsometry, MANY, almost_isometry),
    "soft_orthogonality": (SoftOrthogonality, {}, lambda W: (deviation(W) ** 2).sum((-2, -1))),
    # At small weights the eigenvalues of WᵀW − I crowd near −1: power iteration tells them apart slowly.
    "srip": (SRIP, {"iterations": 6000}, lambda W: torch.linalg.eigvalsh(deviation(W)).abs().amax(-1)),
}


def build(name: str, shape: tuple[int, int]) -> tuple[GradientPenalty, object]:
    cls, keys, definition = CASES[name]
    return cls(nn.Linear(shape[1], shape[0]), lam=1.0, **keys), definition


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("scale", [0.1, 1.5])
@pytest.mark.parametrize("name", CASES)
def test_gradient_is_that_of_the_definition(name: str, scale: float, shape: tuple[int, int]) -> None:
    regularizer, definition = build(name, shape)
    generator = torch.Generator().manual_seed(3)
    W = scale * torch.randn(4, *shape, dtype=torch.float64, generator=generator)  # a batch of four
    W.requires_grad_()
    values = definition(W)  # type: ignore[operator]
    (gradient,) = torch.autograd.grad(values.sum(), W)

    result = regularizer.penalty(W.detach(), group="group")

    torch.testing.assert_close(result.value, values.detach(), rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(result.gradient, gradient, rtol=1e-4, atol=1e-6 * float(gradient.abs().max()))


@pytest.mark.parametrize("alphas", [(1.0, 0.1), (1.0, 0.0), (0.0, 1.0)])
def test_cmr_gradient_is_that_of_the_layer_penalty(alphas: tuple[float, float]) -> None:
    model = nn.Linear(9, 6).double()
    cmr = CMR(model, alpha1=alphas[0], alpha2=alphas[1], engine="exact")
    W = model.weight.detach().clone().requires_grad_()
    (gradient,) = torch.autograd.grad(layer_penalty(W, cmr.spec), W)

    result = cmr.penalty(model.weight.detach()[None], group="6x9")

    torch.testing.assert_close(result.gradient[0], gradient)


@pytest.mark.parametrize("name", CASES)
def test_gradient_is_finite_at_degenerate_matrices(name: str) -> None:
    cls, _, _ = CASES[name]
    regularizer = cls(nn.Linear(5, 5), lam=1.0)
    W = torch.stack([torch.zeros(5, 5), torch.eye(5), 0.06 * torch.eye(5), torch.ones(5, 5), 1e-20 * torch.eye(5)])
    for _ in range(3):
        result = regularizer.penalty(W, group="group")
        assert torch.isfinite(result.gradient).all()
        assert torch.isfinite(result.value).all()


def test_power_iteration_leaves_a_zero_matrix_behind() -> None:
    penalty = SpectralPenalty(nn.Linear(5, 5), lam=1.0, iterations=50)
    penalty.penalty(torch.zeros(1, 5, 5), group="group")
    result = penalty.penalty(torch.diag(torch.tensor([3.0, 1, 1, 1, 1]))[None], group="group")
    assert float(result.value) == pytest.approx(4.5)


def test_srip_reads_the_norm_where_both_signs_are_extreme() -> None:
    # WᵀW − I has eigenvalues 1 and −1: a Rayleigh quotient of a mixed vector would read anything between.
    W = torch.diag(torch.tensor([2.0**0.5, 0.0, 1.0, 1.0]))[None]
    result = SRIP(nn.Linear(4, 4), lam=1.0, iterations=50).penalty(W, group="group")
    assert float(result.value) == pytest.approx(1.0, abs=1e-5)


def test_warm_start_follows_weights_that_move_slowly() -> None:
    generator = torch.Generator().manual_seed(0)
    penalty = SpectralPenalty(nn.Linear(32, 32), lam=1.0, iterations=1)
    W = torch.randn(1, 32, 32, generator=generator)
    for _ in range(60):
        W = W + 0.005 * torch.randn(1, 32, 32, generator=generator)
        value = penalty.penalty(W, group="group").value
    assert float(value) == pytest.approx(float(sigma_max(W)) ** 2 / 2, rel=1e-2)


def test_almost_isometry_is_zero_only_at_kappa_one() -> None:
    penalty = AlmostIsometry(nn.Linear(5, 5), lam=1.0, iterations=100)
    isometry, other = 0.3 * torch.eye(5), torch.diag(torch.tensor([1.0, 1, 1, 1, 0.9]))
    value = penalty.penalty(torch.stack([isometry, other]), group="group").value
    assert abs(float(value[0])) < 1e-7
    assert float(value[1]) > 1e-3
