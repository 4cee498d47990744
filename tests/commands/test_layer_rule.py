"""Fused weights are split from the command line, in what is trained, measured and analysed."""

import csv
from pathlib import Path

import pytest
from run_process import call, only_directory

from cmr_runner.commands import analyze

BASE = ("dataset=synthetic", "dataset.shape=[1,8,8]", "dataset.train=16", "dataset.test=8", "trainer.epochs=1")
BASE += ("trainer.batch_size=8", "init=glorot_uniform", "model=vit", "model.depth=1", "model.width=8", "model.heads=2")


@pytest.mark.parametrize(
    ("word", "parts"),
    [
        ("regularizer.layers.split=null", [".q", ".k", ".v"]),
        ("regularizer.layers.split={*.in_proj_weight: 1}", [""]),
        ("regularizer.layers.split={*.in_proj_weight: [8,16]}", [".0", ".1"]),
        ("regularizer.layers.heads=true", [f".{part}.h{head}" for part in "qkv" for head in (0, 1)]),
        ("regularizer.layers.heads={*.in_proj_weight: 4}", [f".{part}.h{head}" for part in "qkv" for head in range(4)]),
    ],
)
def test_a_fused_weight_is_split_as_asked(
    word: str, parts: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = call(tmp_path, word, base=BASE)
    assert done.returncode == 0, done.stderr
    directory = only_directory(tmp_path)
    with (directory / "layers.csv").open() as file:
        measured = [row["layer"] for row in csv.DictReader(file) if row["epoch"] == "1"]
    expected = [f"encoder.layers.0.self_attn.in_proj_weight{part}" for part in parts]
    assert [name for name in measured if "in_proj" in name] == expected
    if word != "regularizer.layers.heads=true":  # a state_dict does not say how many heads its attention has
        assert analyze.main([str(directory), "--csv"]) == 0
        table = csv.DictReader(capsys.readouterr().out.splitlines())
        assert [row["layer"] for row in table if "in_proj" in row["layer"]] == expected
