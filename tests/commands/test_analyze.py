"""cmr-analyze: saved weights as a table, parametrised ones as what they stand for."""

import io
import json
from pathlib import Path

import pandas as pd
import pytest
import torch
from torch import nn

from cmr_runner.commands.analyze import main
from cmr_runner.models import CNN, MLP, ViT
from cmr_runner.regularizers import LayerRule, Orthogonal, SpectralNorm, analyze

MODELS = {
    "mlp": lambda: MLP((1, 8, 8), 10, depth=3, width=12),
    "cnn": lambda: CNN((1, 8, 8), 10, channels=[4, 6]),
    "transformer": lambda: ViT((1, 8, 8), 10, depth=1, width=16, heads=2),
}


def csv(capsys: pytest.CaptureFixture[str], *arguments: object) -> pd.DataFrame:
    assert main([*map(str, arguments), "--csv"]) == 0
    return pd.read_csv(io.StringIO(capsys.readouterr().out))


@pytest.mark.parametrize("put", [None, SpectralNorm, Orthogonal])
@pytest.mark.parametrize("name", MODELS)
def test_table_of_a_file_is_that_of_the_model(
    name: str, put: type | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = MODELS[name]()
    if put is not None:
        put(model)
        with torch.no_grad():
            for p in model.parameters():
                p += 0.05 * torch.randn_like(p)
    torch.save(model.state_dict(), tmp_path / "model.pt")
    expected = analyze(model.eval())
    if name == "transformer" and put is not None:  # a state_dict lists plain parameters before parametrised ones
        expected = expected.sort_values("layer").reset_index(drop=True)
    found = csv(capsys, tmp_path / "model.pt")
    if name == "transformer" and put is not None:
        found = found.sort_values("layer").reset_index(drop=True)
    assert found["layer"].tolist() == expected["layer"].tolist()
    for column in expected.columns[1:]:
        # Moments of an orthogonal weight are those of rounding errors.
        if put is not Orthogonal or column in ("rows", "cols", "kappa", "sigma_max", "sigma_min"):
            assert found[column].tolist() == pytest.approx(expected[column].tolist(), rel=1e-4, abs=1e-6), column


def test_a_run_directory_uses_its_own_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = MODELS["mlp"]()
    torch.save(
        {"format": 1, "identity": "x", "state": {"trainer": {"model": model.state_dict()}}}, tmp_path / "checkpoint.pt"
    )
    settings = {
        "K": 4,
        "eps": 1e-3,
        "beta": 1.0,
        "gram": "columns",
        "layers": {"include": [], "exclude": ["layers.0*"], "types": [], "min_side": 2},
    }
    (tmp_path / "run.json").write_text(json.dumps({"config": {"regularizer": settings}}))
    expected = analyze(model, layers=LayerRule(exclude=["layers.0*"]), K=4, eps=1e-3, beta=1.0, gram="columns")
    found = csv(capsys, tmp_path)
    assert list(found.columns) == list(expected.columns)
    for column in ("rho_cond", "rho_moment", "s_4"):
        assert found[column].tolist() == pytest.approx(expected[column].tolist())
    assert found["layer"].tolist() == ["layers.1.weight", "layers.2.weight"]


def test_model_pt_goes_before_checkpoint_pt(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save(nn.Linear(4, 3).state_dict(), tmp_path / "checkpoint.pt")
    torch.save(nn.Linear(6, 5).state_dict(), tmp_path / "model.pt")
    assert csv(capsys, tmp_path)["cols"].tolist() == [6]


def test_text_table_and_several_paths(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a.pt", "b.pt"):
        torch.save({"weight": 2 * torch.eye(3)}, tmp_path / name)
    assert main([str(tmp_path / "a.pt"), str(tmp_path / "b.pt")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{tmp_path / 'a.pt'}:"
    assert lines[1].split()[:5] == ["layer", "κ", "σ_max", "σ_min", "shape"]
    assert lines[2].split()[:7] == ["weight", "1", "2", "2", "3", "×", "3"]
    found = csv(capsys, tmp_path / "a.pt", tmp_path / "b.pt")
    assert found["path"].tolist() == [str(tmp_path / "a.pt"), str(tmp_path / "b.pt")]


@pytest.mark.parametrize("suffix", ["png", "pdf"])
def test_plot_is_written_beside_the_table(suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a.pt", "b.pt"):
        torch.save(MODELS["mlp"]().state_dict(), tmp_path / name)
    file = tmp_path / f"spectra.{suffix}"
    assert main([str(tmp_path / "a.pt"), str(tmp_path / "b.pt"), "--plot", str(file)]) == 0
    assert file.read_bytes()[:4] in (b"\x89PNG", b"%PDF")
    assert capsys.readouterr().out.count("layers.2.weight") == 2
    with pytest.raises(SystemExit) as exit_:
        main([str(tmp_path / "a.pt"), "--plot", str(tmp_path / "spectra.doc")])
    assert exit_.value.code == 2
    assert "spectra.doc" in capsys.readouterr().err


def test_include_and_exclude_choose_layers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save(MODELS["mlp"]().state_dict(), tmp_path / "model.pt")
    assert csv(capsys, tmp_path / "model.pt", "--include", "*.1.*")["layer"].tolist() == ["layers.1.weight"]
    assert len(csv(capsys, tmp_path / "model.pt", "--exclude", "*.1.*")) == 2


def test_a_mistake_takes_one_line_and_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text.pt").write_text("words")
    torch.save({"bias": torch.zeros(3)}, tmp_path / "vector.pt")
    torch.save({"parametrizations.weight.original0": torch.zeros(3, 3)}, tmp_path / "weight_norm.pt")
    expected = {
        tmp_path / "nothing.pt": "No such file",
        tmp_path: "no model.pt or checkpoint.pt in it",
        tmp_path / "text.pt": "not a file of tensors",
        tmp_path / "vector.pt": "no weight with at least two dimensions",
        tmp_path / "weight_norm.pt": "behind a parametrisation that is not known here",
    }
    for path, message in expected.items():
        with pytest.raises(SystemExit) as exit_:
            main([str(path)])
        said = capsys.readouterr().err
        assert exit_.value.code == 2
        assert message in said
        assert said.count("\n") == 1
