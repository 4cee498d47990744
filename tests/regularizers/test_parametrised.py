"""Spectral normalisation, alone and under CMR, and hard orthogonality."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import parametrizations

from cmr_runner.regularizers import CMR, Orthogonal, SpectralNorm, SpectralNormCMR, analyze
from cmr_runner.spectral import PenaltySpec, singular_values
from cmr_runner.spectral.penalty import exact_penalty


class Various(nn.Module):
    """A convolution, an attention and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(3, 8, 3)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        z = self.conv(x).flatten(2).mT  # (B, positions, 8)
        return self.head(self.attention(z, z, z, need_weights=False)[0].mean(1))


X = torch.randn(16, 3, 6, 6, generator=torch.Generator().manual_seed(1))
Y = torch.randint(0, 4, (16,), generator=torch.Generator().manual_seed(2))


def train(model: nn.Module, steps: int = 5) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        optimizer.zero_grad()
        cross_entropy(model(X), Y).backward()
        optimizer.step()


def test_orthogonal_holds_kappa_at_one_while_every_layer_trains() -> None:
    model = Various()
    Orthogonal(model)
    before = {name: p.detach().clone() for name, p in model.named_parameters() if "original" in name}
    train(model)
    table = analyze(model)
    assert len(table) == 6  # conv, q, k, v, out, head: a fused weight is three orthogonal matrices
    assert table["kappa"].max() < 1 + 1e-4
    assert table["sigma_max"].tolist() == pytest.approx([1.0] * 6, abs=1e-4)
    assert all(not torch.equal(before[name], p) for name, p in model.named_parameters() if name in before)


@pytest.mark.parametrize("orthogonal_map", ["cayley", "householder", "matrix_exp"])
def test_orthogonal_keeps_the_directions_of_the_start_and_drops_its_scale(orthogonal_map: str) -> None:
    model = nn.Linear(6, 6, bias=False)
    nn.init.orthogonal_(model.weight, gain=0.06)
    start = model.weight.detach().clone()
    Orthogonal(model, orthogonal_map=orthogonal_map)  # type: ignore[arg-type]
    torch.testing.assert_close(model.weight.detach(), start / 0.06, rtol=1e-3, atol=1e-4)


def test_orthogonal_refuses_an_unknown_map() -> None:
    with pytest.raises(ValueError, match=r"^orthogonal_map must be one of cayley, .* got 'qr'"):
        Orthogonal(nn.Linear(4, 4), orthogonal_map="qr")  # type: ignore[arg-type]


def test_spectral_norm_brings_every_layer_to_sigma_max_one() -> None:
    model = Various()
    with torch.no_grad():
        for p in model.parameters():
            p *= 0.06
    SpectralNorm(model, power_iterations=20)
    train(model)
    model(X)  # the weights' last step is not yet in the power iteration's vectors
    model.eval()
    for weight in (model.conv.weight.flatten(1), model.attention.in_proj_weight, model.head.weight):
        assert float(singular_values(weight)[0]) == pytest.approx(1.0, abs=1e-2)


@pytest.mark.parametrize("regularizer", [SpectralNorm, Orthogonal])
def test_parametrising_is_seeded_and_leaves_the_global_generator_alone(regularizer: type) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    models = [Various(), Various()]
    torch.manual_seed(5)
    for model in models:
        regularizer(model, seed=3)
    assert torch.equal(torch.rand(3), expected)
    one, other = (model.state_dict() for model in models)
    assert all(torch.equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize("regularizer", [SpectralNorm, SpectralNormCMR, Orthogonal])
def test_state_dict_of_the_trained_model_loads_into_a_fresh_one(regularizer: type) -> None:
    trained, fresh = Various(), Various()
    regularizer(trained, seed=0)
    train(trained)
    regularizer(fresh, seed=1)
    fresh.load_state_dict(copy.deepcopy(trained.state_dict()))
    assert torch.equal(fresh.eval()(X), trained.eval()(X))


def test_a_weight_that_is_parametrised_already_is_refused() -> None:
    model = nn.Linear(4, 4)
    SpectralNorm(model)
    with pytest.raises(ValueError, match="weight is parametrised already"):
        SpectralNorm(model)


def test_sn_cmr_gradient_matches_finite_differences_of_the_raw_weight() -> None:
    torch.manual_seed(0)
    model = nn.Linear(6, 5, bias=False).double()
    cmr = SpectralNormCMR(model, mixing="uncapped", lam=1.0, engine="exact", power_iterations=200)
    raw = model.parametrizations.weight.original
    cmr.add_gradients()
    gradient = raw.grad.clone()

    spec = PenaltySpec()
    model.eval()  # u and v stay: converged, so their own movement is of second order
    differences = torch.zeros_like(gradient)
    h = 1e-6
    for i in range(raw.shape[0]):
        for j in range(raw.shape[1]):
            values = []
            for sign in (1, -1):
                with torch.no_grad():
                    raw[i, j] += sign * h
                    values.append(exact_penalty(model.weight, spec).value)
                    raw[i, j] -= sign * h
            differences[i, j] = (values[0] - values[1]) / (2 * h)
    torch.testing.assert_close(gradient, differences, rtol=1e-5, atol=1e-6)


def test_sn_cmr_reduces_kappa_of_the_effective_weight() -> None:
    model = Various()
    cmr = SpectralNormCMR(model, mixing="uncapped", lam=0.1)
    before = analyze(model)["kappa"].mean()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(40):
        optimizer.zero_grad()
        model(X)  # advances the power iteration, as training does
        cmr.add_gradients()
        optimizer.step()
    assert analyze(model)["kappa"].mean() < 0.7 * before


@pytest.mark.parametrize("parametrisation", [parametrizations.spectral_norm, parametrizations.weight_norm])
def test_between_two_evaluations_the_held_gradient_is_pulled_back_again(
    parametrisation: Callable[..., nn.Module],
) -> None:
    torch.manual_seed(0)
    model = parametrisation(nn.Linear(6, 5))
    cmr = CMR(model, mixing="uncapped", every=3)
    by_step = []
    for _ in range(2):
        model.zero_grad()
        cmr.add_gradients()
        by_step.append([p.grad for p in model.parametrizations.parameters()])
    for first, second in zip(*by_step, strict=True):
        torch.testing.assert_close(second, first)


def test_nothing_is_held_for_a_parametrised_weight() -> None:
    """Its normalisation can move the whole spectrum in one step, so moments of an earlier one are not its moments."""
    gradients = []
    for refresh in (8, 1):
        torch.manual_seed(0)
        model = parametrizations.weight_norm(nn.Linear(64, 64, bias=False))
        cmr = CMR(model, mixing="uncapped", engine={"name": "staggered", "refresh": refresh})
        scale = model.parametrizations.weight.original0
        for _ in range(6):
            with torch.no_grad():
                scale.mul_(0.8 + 0.4 * torch.rand(()))
            model.zero_grad()
            cmr.add_gradients()
        gradients.append([p.grad for p in model.parameters()])
    assert all(torch.equal(held, fresh) for held, fresh in zip(*gradients, strict=True))
