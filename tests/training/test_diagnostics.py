"""κ of the Jacobian and the layers' gradient norms, against autograd, and beside bounds that hold."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from cmr_runner.data.dataset import Dataset
from cmr_runner.data.synthetic import synthetic
from cmr_runner.models import CNN, MLP
from cmr_runner.regularizers import CMR, SpectralNorm
from cmr_runner.spectral import condition_number, singular_values
from cmr_runner.training.diagnostics import Diagnostics
from cmr_runner.training.loop import Trainer

DATA = synthetic(shape=[20], classes=6, train=32, test=8)


def network(activation: str = "tanh", *, seed: int = 0, bias: bool = True) -> MLP:
    torch.manual_seed(seed)
    return MLP((20,), 6, depth=4, width=12, activation=activation, bias=bias)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", ["tanh", "silu", "identity"])
def test_jacobian_kappa_is_that_of_autograds_jacobian(activation: str, bias: bool) -> None:
    model = network(activation, bias=bias)
    figures, _ = Diagnostics(model, DATA, inputs=5)()
    double = network(activation, bias=bias).double()
    jacobians = torch.func.vmap(torch.func.jacrev(lambda x: double(x[None])[0]))(DATA.train_x[:5].double())
    expected = condition_number(singular_values(jacobians)).log().mean().exp()
    assert figures["jacobian_kappa"] == pytest.approx(float(expected), rel=1e-6)


def test_gradient_norms_are_those_of_autograd() -> None:
    model = network().double()
    _, rows = Diagnostics(model, DATA, inputs=5)()
    expected = torch.zeros(4, dtype=torch.float64)
    for x, y in zip(DATA.train_x[:5].double(), DATA.train_y[:5], strict=True):
        z, h = x[None], []
        for layer in model.layers:
            h.append(layer(z))
            h[-1].retain_grad()
            z = torch.tanh(h[-1])
        cross_entropy(h[-1], y[None]).backward()
        expected += torch.stack([value.grad.norm() for value in h]) / 5
    assert [row["grad_h"] for row in rows.values()] == pytest.approx(expected.tolist(), rel=1e-9)
    assert list(rows) == [f"layers.{i}.weight" for i in range(4)]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("activation", ["tanh", "silu", "relu"])
def test_both_bounds_hold(activation: str, seed: int) -> None:
    figures, rows = Diagnostics(network(activation, seed=seed), DATA)()
    assert 1 <= figures["jacobian_kappa"] <= figures["jacobian_kappa_bound"]
    for row in rows.values():
        assert 0 < row["grad_h"] <= row["grad_h_bound"] * (1 + 1e-9)
    last = rows["layers.3.weight"]
    assert last["grad_h"] == last["grad_h_bound"]


def test_kappa_stress_is_where_the_gradient_dies() -> None:
    model = network("identity", bias=False)
    for layer in model.layers:
        torch.nn.init.orthogonal_(layer.weight, gain=0.06)
    _, rows = Diagnostics(model, DATA)()
    first, last = rows["layers.0.weight"], rows["layers.3.weight"]
    assert first["grad_h_bound"] == pytest.approx(0.06**3 * last["grad_h"], rel=1e-5)


def train(diagnostics: bool) -> tuple[MLP, dict[str, float]]:
    model = network()
    SpectralNorm(model)
    trainer = Trainer(
        model=model,
        data=DATA,
        regularizer=CMR(model),
        optimizer=torch.optim.Adam(model.parameters()),
        seed=0,
        epochs=2,
        batch_size=16,
        diagnostics=diagnostics,
    )
    *_, last = trainer.run()
    return model, last.metrics


def test_diagnostics_change_nothing_of_the_training() -> None:
    (with_them, figures), (without, plain) = train(True), train(False)
    assert all(torch.equal(a, b) for a, b in zip(with_them.parameters(), without.parameters(), strict=True))
    assert "jacobian_kappa" in figures
    assert "jacobian_kappa" not in plain


def test_weights_that_are_not_finite_give_nan() -> None:
    model = network()
    with torch.no_grad():
        model.layers[1].weight[0, 0] = torch.inf
    figures, rows = Diagnostics(model, DATA)()
    assert figures["jacobian_kappa"] != figures["jacobian_kappa"]
    assert rows["layers.0.weight"]["grad_h"] != rows["layers.0.weight"]["grad_h"]


def test_another_kind_of_network_is_refused_in_one_line() -> None:
    x, y = torch.zeros(4, 1, 8, 8), torch.zeros(4, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"trainer.diagnostics needs a feed-forward chain \(model=mlp\), not CNN"):
        Diagnostics(CNN((1, 8, 8), 3), Dataset("zeros", x, y, x, y, 3))
