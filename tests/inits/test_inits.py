"""Initialisations give the spectra they promise, from their generator alone."""

from pathlib import Path

import pytest
import torch
from torch import Generator, nn

from cmr_runner.inits import checkpoint_, glorot_uniform_, kaiming_normal_, orthogonal_, prescribed_kappa_, rescaled_
from cmr_runner.models import CNN, MLP, ViT
from cmr_runner.regularizers import analyze

MODELS = {
    "mlp": lambda: MLP((1, 8, 8), 10, depth=4, width=24),
    "cnn": lambda: CNN((1, 8, 8), 10, channels=[6, 8]),
    "transformer": lambda: ViT((1, 8, 8), 10, depth=2, width=16),
}
INITS = {
    "glorot_uniform": (glorot_uniform_, {}),
    "kaiming": (kaiming_normal_, {}),
    "orthogonal": (orthogonal_, {"gain": 0.06}),
    "rescaled": (rescaled_, {}),
    "prescribed_kappa": (prescribed_kappa_, {"kappa": 50.0}),
}


def generator(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


@pytest.mark.parametrize("model_name", MODELS)
@pytest.mark.parametrize("init_name", INITS)
def test_init_depends_on_its_generator_alone_and_writes_every_layer(init_name: str, model_name: str) -> None:
    init, keys = INITS[init_name]
    models = [MODELS[model_name]() for _ in range(3)]
    before = [layer.clone() for layer in models[0].state_dict().values()]
    for model, seed in zip(models, (0, 0, 1), strict=True):
        torch.rand(seed + 3)  # moves the global generator, which must not matter
        init(model, generator(seed), **keys)
    tables = [analyze(model) for model in models]
    assert tables[0].equals(tables[1])
    changed = zip(models[0].named_parameters(), before, models[2].parameters(), strict=True)
    for (name, parameter), old, other in changed:
        if parameter.ndim >= 2 and name != "position":
            assert not torch.equal(parameter, old), name
            assert not torch.equal(parameter, other), name
    assert not any(p.any() for n, p in models[0].named_parameters() if "bias" in n and "norm" not in n)


@pytest.mark.parametrize("model_name", MODELS)
def test_kappa_stress_has_every_singular_value_at_the_gain(model_name: str) -> None:
    model = MODELS[model_name]()
    orthogonal_(model, generator(), gain=0.06)
    table = analyze(model)
    assert table["kappa"].max() < 1 + 1e-5
    assert table["sigma_max"].tolist() == pytest.approx([0.06] * len(table), rel=1e-5)


@pytest.mark.parametrize("kappa", [1.0, 1e3, 1e5])
@pytest.mark.parametrize("model_name", MODELS)
def test_prescribed_kappa_is_exact_to_float_precision(model_name: str, kappa: float) -> None:
    model = MODELS[model_name]()
    prescribed_kappa_(model, generator(), kappa=kappa, scale=0.5)
    table = analyze(model)
    assert table["kappa"].tolist() == pytest.approx([kappa] * len(table), rel=2e-7 * kappa + 1e-6)
    rms = table["sigma_max"] * (table["stable_rank"] / table[["rows", "cols"]].min(axis=1)) ** 0.5
    assert rms.tolist() == pytest.approx([0.5] * len(table), rel=1e-5)


def test_prescribed_kappa_in_float64_is_exact_to_rounding() -> None:
    model = nn.Linear(20, 30).double()
    prescribed_kappa_(model, generator(), kappa=1e6)
    assert analyze(model)["kappa"][0] == pytest.approx(1e6, rel=1e-8)


def test_rescaled_equals_an_orthogonal_start_of_gain_one_up_to_rounding() -> None:
    rescaled, orthogonal = MODELS["mlp"](), MODELS["mlp"]()
    rescaled_(rescaled, generator(), gain=0.06)
    orthogonal_(orthogonal, generator(), gain=1.0)
    for one, other in zip(rescaled.parameters(), orthogonal.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
    assert analyze(rescaled)["sigma_max"].tolist() == pytest.approx([1.0] * 4, rel=1e-6)


def test_glorot_and_kaiming_have_the_variance_they_are_named_for() -> None:
    layer = nn.Linear(400, 200)
    glorot_uniform_(layer, generator())
    assert float(layer.weight.detach().var()) == pytest.approx(2 / 600, rel=0.02)
    kaiming_normal_(layer, generator())
    assert float(layer.weight.detach().var()) == pytest.approx(2 / 400, rel=0.02)


@pytest.mark.parametrize("wrap", [lambda s: s, lambda s: {"state": {"trainer": {"model": s}}}, lambda s: {"model": s}])
def test_checkpoint_restores_weights_from_any_wrapping(tmp_path: Path, wrap) -> None:  # type: ignore[no-untyped-def]
    source, target = MODELS["mlp"](), MODELS["mlp"]()
    torch.save(wrap(source.state_dict()), tmp_path / "file.pt")
    checkpoint_(target, generator(), path=str(tmp_path / "file.pt"))
    assert all(torch.equal(a, b) for a, b in zip(source.parameters(), target.parameters(), strict=True))


def test_checkpoint_says_in_a_line_what_is_wrong(tmp_path: Path) -> None:
    model = MODELS["mlp"]()
    (tmp_path / "text.pt").write_text("no tensors here")
    torch.save({"a": 1}, tmp_path / "other.pt")
    torch.save(MODELS["cnn"]().state_dict(), tmp_path / "cnn.pt")
    torch.save(MLP((1, 8, 8), 10, depth=4, width=12).state_dict(), tmp_path / "narrow.pt")
    state = model.state_dict()
    torch.save(state | {"layers.0.weight": state["layers.0.weight"].to(torch.complex64)}, tmp_path / "complex.pt")
    torch.save(state | {"layers.0.bias": torch.full((24,), torch.nan)}, tmp_path / "nan.pt")
    expected = {
        "complex.pt": "layers.0.weight is torch.complex64, not torch.float32",
        "nan.pt": "layers.0.bias holds values that are not finite",
        "missing.pt": "No such file",
        "text.pt": "not a file of tensors",
        "other.pt": "holds no state_dict",
        "cnn.pt": "missing layers.0.bias, .* and 5 more; unexpected convolutions",
        "narrow.pt": r"layers.0.weight is \(12, 64\), not \(24, 64\)",
    }
    for name, message in expected.items():
        with pytest.raises(ValueError, match=message) as error:
            checkpoint_(model, generator(), path=str(tmp_path / name))
        assert str(error.value).startswith("path=")
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("init", "keys", "message"),
    [
        (orthogonal_, {"gain": 0}, r"^gain must be in \(0, 1000000.0\], got 0"),
        (glorot_uniform_, {"gain": -1}, r"^gain must be in \(0, .* got -1"),
        (prescribed_kappa_, {"kappa": 0.5}, r"^kappa must be in \[1, 10000000.0\], got 0.5"),
        (prescribed_kappa_, {"kappa": 1e300}, r"^kappa must be in \[1, 10000000.0\], got 1e\+300"),
        (prescribed_kappa_, {"scale": 0}, "^scale must be in .* got 0"),
        (rescaled_, {"sigma_max": 0}, "^sigma_max must be in .* got 0"),
        (kaiming_normal_, {"mode": "fan"}, "^mode must be one of fan_in, fan_out, got 'fan'"),
        (kaiming_normal_, {"nonlinearity": "cosine"}, "^nonlinearity must be one of relu, .* got 'cosine'"),
    ],
)
def test_senseless_settings_are_refused(init, keys: dict[str, object], message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=message):
        init(MODELS["mlp"](), generator(), **keys)
