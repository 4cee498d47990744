"""docs/extending.md does what it says: its files, written outside the package, and its commands. Nothing is edited."""

import csv
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from run_process import PATIENCE, TINY, call, directories, environment, only_directory, record

from cmr_runner.runs.columns import METRICS

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"
SECTIONS = dict(part.split("\n", 1) for part in PAGE.read_text().split("\n## ")[1:])
SMALL = ("trainer.epochs=1", "progress=none")


def blocks(section: str, *languages: str) -> list[str]:
    return re.findall(rf"^```(?:{'|'.join(languages)})\n(.*?)^```$", SECTIONS[section], flags=re.MULTILINE | re.DOTALL)


def files(section: str) -> dict[str, str]:
    """The files of a section by the names in the comments at their tops."""
    return {re.findall(r"^# (\S+)$", text, flags=re.MULTILINE)[0]: text for text in blocks(section, "python", "yaml")}


def commands(section: str) -> list[str]:
    return [line for block in blocks(section, "bash") for line in block.splitlines()]


def write(section: str, root: Path) -> Path:
    """The section's files below `root`, and the folder that --config-dir names."""
    for name, text in files(section).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root / "my_conf"


def shell(cwd: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The installed command, which does not have the working directory in its path as `python -m` has."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return subprocess.run(
        words, cwd=cwd, env=environment(PATH=path), capture_output=True, text=True, timeout=PATIENCE, check=False
    )


def final(root: Path) -> dict:
    """What the last row of the one run says; the run is complete."""
    run = record(only_directory(root))
    assert run["status"] == "completed"
    return run["final"]


def a_regulariser(root: Path) -> None:
    assert final(root)["grad_norm_spec"] > 0
    assert final(root)["lambda_t"] == pytest.approx(0.1 * 45 / 46)  # the last of 46 steps, all of them warm-up


def an_engine(root: Path) -> None:
    assert final(root)["grad_norm_spec"] > 0


def a_model(root: Path) -> None:
    with (only_directory(root) / "layers.csv").open() as file:
        shapes = {(row["rows"], row["cols"]) for row in csv.DictReader(file)}
    assert shapes == {("32", "64"), ("10", "32")}


def a_data_set(root: Path) -> None:
    assert final(root)["step"] == 2  # 128 examples in batches of 64


def an_initialisation(root: Path) -> None:
    assert final(root)["kappa_mean"] > 1
    assert record(only_directory(root))["choices"]["init"] == "sparse"


def an_optimiser(root: Path) -> None:
    assert final(root)["lr"] == 0.01


def a_number_per_epoch(root: Path) -> None:
    assert final(root)["largest_entry"] > 0
    with (only_directory(root) / METRICS).open() as file:
        assert next(csv.reader(file))[-1] == "largest_entry"


def a_logger(root: Path) -> None:
    (file,) = (root / "outputs" / "json_lines").iterdir()
    assert file.stem == only_directory(root).name
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [0, 1]
    assert lines[-1]["train_loss"] == final(root)["train_loss"]


def a_figure(root: Path) -> None:
    assert len(directories(root)) == 2
    assert (root / "my_figures/digits/rho_cond.png").read_bytes().startswith(b"\x89PNG")
    assert (root / "my_figures/digits/rho_cond.pdf").read_bytes().startswith(b"%PDF")


def an_experiment(root: Path) -> None:
    runs = [record(directory) for directory in directories(root)]
    assert {(run["config"]["model"]["width"], run["choices"]["regularizer"]) for run in runs} == {
        (width, method) for width in (16, 32) for method in ("none", "cmr")
    }
    assert {run["identity"]["experiment"] for run in runs} == {"widths"}


# Every section with commands has its claim here.
CLAIMS: dict[str, Callable[[Path], None]] = {
    "A regulariser": a_regulariser,
    "An engine": an_engine,
    "A model": a_model,
    "A data set": a_data_set,
    "An initialisation": an_initialisation,
    "An optimiser": an_optimiser,
    "A number per epoch": a_number_per_epoch,
    "A logger": a_logger,
    "A figure": a_figure,
    "An experiment": an_experiment,
}


@pytest.mark.parametrize("section", [name for name in SECTIONS if commands(name)])
def test_a_recipe_does_what_it_says(section: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(section, tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for line in commands(section):
        command, *words = shlex.split(line)
        # In this process, but for scripts; the next test runs the installed command on all recipes at once.
        done = call(tmp_path, *words, base=()) if command == "cmr-run" else shell(tmp_path, command, *words)
        assert done.returncode == 0, done.stderr
    CLAIMS[section](tmp_path)


# group: (its recipe, a number of it)
NUMBERS = {
    "regularizer": ("A regulariser", "unit_energy", "target"),
    "model": ("A model", "two_layers", "width"),
    "dataset": ("A data set", "spirals", "examples"),
    "init": ("An initialisation", "sparse", "density"),
    "optimizer": ("An optimiser", "adagrad", "lr"),
}


def test_one_folder_adds_an_option_to_every_group_and_their_values_are_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for section, _, _ in NUMBERS.values():
        folder = write(section, tmp_path)
    words = ("--config-dir", str(folder), *SMALL, *(f"{group}={option}" for group, (_, option, _) in NUMBERS.items()))
    done = shell(tmp_path, "cmr-run", *words)
    assert done.returncode == 0, done.stderr
    run = record(only_directory(tmp_path))
    assert {group: run["choices"][group] for group in NUMBERS} == {g: option for g, (_, option, _) in NUMBERS.items()}

    monkeypatch.setattr(sys, "path", [*sys.path])
    for group, (_, _, key) in NUMBERS.items():
        wrong = call(tmp_path, *words, f"{group}.{key}=many", base=())
        assert wrong.returncode == 2
        assert wrong.stderr.startswith(f"cmr-run: {group}.{key} must be a")
        assert wrong.stderr.endswith("got 'many'\n")
    unknown = call(tmp_path, *words, "regularizer.K=3", base=())
    assert unknown.stderr.startswith("cmr-run: regularizer.K=3: no such key; ")
    assert "regularizer.target" in unknown.stderr
    assert "regularizer.alpha1" not in unknown.stderr  # a key of the default's, not of this one
    outside = call(tmp_path, *words, "regularizer.target=-1", base=())
    assert (outside.returncode, outside.stderr) == (2, "cmr-run: regularizer.target must be > 0, got -1\n")


@pytest.mark.parametrize("place", ["beside the folder", "working directory"])
def test_the_module_may_lie_elsewhere(place: str, tmp_path: Path) -> None:
    cwd = tmp_path / "cwd"
    cwd.mkdir()
    folder = write("An initialisation", tmp_path)
    home = tmp_path if place == "beside the folder" else cwd
    (folder / "sparse_init.py").rename(home / "sparse_init.py")
    words = ("cmr-run", "--config-dir", str(folder), *TINY, *SMALL, "init=sparse")
    foreseen = shell(cwd, *words, "dry=true")
    assert "1 would start" in foreseen.stdout, foreseen.stdout
    done = shell(cwd, *words)
    assert done.returncode == 0, done.stderr


def test_a_module_that_is_not_found_or_broken_is_one_line_that_says_where_to_put_it(tmp_path: Path) -> None:
    folder = write("An initialisation", tmp_path)
    (folder / "sparse_init.py").unlink()
    words = ("cmr-run", "--config-dir", str(folder), *TINY, *SMALL, "init=sparse")
    done = shell(tmp_path, *words)
    assert done.returncode == 2
    trouble = "cmr-run: init._target_=sparse_init.sparse_ cannot be imported: "
    assert done.stderr.startswith(f"{trouble}ModuleNotFoundError: No module named 'sparse_init'; it may be installed")
    assert done.stderr.endswith("PYTHONPATH, in --config-dir or beside it, or in the working directory\n")
    (tmp_path / "sparse_init.py").write_text("def sparse_(:\n")
    broken = shell(tmp_path, *words)
    assert broken.stderr.startswith(f"{trouble}SyntaxError: ")
    assert broken.stderr.count("\n") == 1
    assert not list(tmp_path.rglob("run.json"))
