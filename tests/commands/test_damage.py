"""What was damaged, lost or put in the way is noticed, and what can be made again is made again, bit for bit."""

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from run_process import call, environment, only_directory, record, results

from cmr_runner.runs.lock import run_lock

WORDS = ("trainer.epochs=2",)
WITHOUT_WEIGHTS = Path(__file__).parents[2] / "scripts" / "without_weights.py"
KEPT = ("metrics.csv", "layers.csv", "spectra.csv", "model.pt")


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run directory of WORDS left alone."""
    root = tmp_path_factory.mktemp("calm")
    assert call(root, *WORDS).returncode == 0
    return only_directory(root)


@pytest.fixture
def directory(calm: Path, tmp_path: Path) -> Path:
    """A copy of it, to damage; its root is `tmp_path`."""
    return Path(shutil.copytree(calm, tmp_path / "outputs" / "single" / calm.name))


def flip(path: Path) -> None:
    blob = bytearray(path.read_bytes())
    blob[len(blob) // 2] ^= 1
    path.write_bytes(blob)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def zero(path: Path) -> None:
    blob = path.read_bytes()
    path.write_bytes(blob[:-40] + bytes(20) + blob[-20:])


DAMAGES: dict[str, Callable[[Path], None]] = {
    "deleted": Path.unlink,
    "emptied": lambda path: path.write_bytes(b"") and None,
    "cut": cut,
    "a bit": flip,
    "zeros": zero,
}


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("name", KEPT)
def test_a_damaged_file_of_a_completed_run_is_restored(
    name: str, how: str, calm: Path, directory: Path, tmp_path: Path
) -> None:
    DAMAGES[how](directory / name)
    done = call(tmp_path, *WORDS)
    assert done.returncode == 0, done.stderr
    assert name in done.stderr
    assert "made again" in done.stderr
    assert results(directory) == results(calm)
    again = call(tmp_path, *WORDS)
    assert "completed before" in again.stdout
    assert again.stderr == ""


def test_without_a_checkpoint_the_damaged_run_is_computed_again(calm: Path, directory: Path, tmp_path: Path) -> None:
    (directory / "checkpoint.pt").unlink()
    assert "completed before" in call(tmp_path, *WORDS).stdout  # nothing a completed run needs
    cut(directory / "layers.csv")
    done = call(tmp_path, *WORDS)
    assert done.returncode == 0
    assert "resumed" not in done.stdout
    assert results(directory) == results(calm)


def test_a_run_whose_weights_were_left_out_on_purpose_is_complete(directory: Path, tmp_path: Path) -> None:
    assert record(directory)["files"].keys() == set(KEPT)
    command = [sys.executable, str(WITHOUT_WEIGHTS), str(tmp_path)]
    assert subprocess.run(command, env=environment(), check=False).returncode == 0
    assert {path.name for path in directory.iterdir()} == {".hydra", "run.json", *KEPT[:3]}
    done = call(tmp_path, *WORDS)
    assert "completed before" in done.stdout
    assert done.stderr == ""
    cut(directory / "metrics.csv")
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "metrics.csv has" in done.stderr


def test_a_damaged_run_is_not_copied_to_another_experiment(calm: Path, directory: Path, tmp_path: Path) -> None:
    flip(directory / "metrics.csv")
    done = call(tmp_path, *WORDS, "experiment=kappa_stress")
    assert done.returncode == 0
    assert "copied" not in done.stdout
    assert results(tmp_path / "outputs" / "kappa_stress" / calm.name) == results(calm)


def change_digit(path: Path) -> None:
    """Of the configuration."""
    path.write_text(path.read_text().replace('"epochs": 2,', '"epochs": 3,', 1))


def change_final(path: Path) -> None:
    path.write_text(path.read_text().replace('"test_accuracy": 0.', '"test_accuracy": 1.'))


def make_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


RECORD_DAMAGES: dict[str, Callable[[Path], None]] = {
    "cut": cut,
    "emptied": DAMAGES["emptied"],
    "deleted": Path.unlink,
    "a bit": flip,
    "a digit": change_digit,
    "a result": change_final,
    "deep": lambda path: path.write_text("[" * 100_000) and None,
    "long number": lambda path: path.write_text(f'{{"status": {"9" * 5000}}}') and None,
    "surrogate": lambda path: path.write_text('{"status": "\\ud800"}') and None,
    "a FIFO": make_fifo,
    "another status": lambda path: path.write_text(path.read_text().replace('"completed"', '"done"')) and None,
}


@pytest.mark.parametrize("how", RECORD_DAMAGES)
def test_a_damaged_run_json_is_rebuilt_from_the_checkpoint(
    how: str, calm: Path, directory: Path, tmp_path: Path
) -> None:
    RECORD_DAMAGES[how](directory / "run.json")
    done = call(tmp_path, *WORDS)
    assert done.returncode == 0, done.stderr
    assert ("run.json is damaged" in done.stderr) is (how != "deleted")
    assert "another configuration" not in done.stderr
    assert results(directory) == results(calm)
    rebuilt, before = record(directory), record(calm)
    assert rebuilt["provenance"]["start"] == before["provenance"]["start"]
    assert (rebuilt["status"], rebuilt["final"], rebuilt["files"]) == ("completed", before["final"], before["files"])


def test_a_damaged_run_json_without_a_checkpoint_starts_the_run_over(
    calm: Path, directory: Path, tmp_path: Path
) -> None:
    (directory / "checkpoint.pt").unlink()
    cut(directory / "run.json")
    done = call(tmp_path, *WORDS)
    assert done.returncode == 0, done.stderr
    assert "starts over" in done.stderr
    assert results(directory) == results(calm)


@pytest.mark.parametrize("name", ["model.pt", "checkpoint.pt"])
def test_damaged_weights_start_no_other_run(name: str, directory: Path, tmp_path: Path) -> None:
    words = ("init=checkpoint", f"init.path={directory / name}", "trainer.epochs=1", "output_root=other")
    flip(directory / name)
    done = call(tmp_path, *words)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "init.path" in line
    assert "SHA-256" in line


def test_weights_are_ordinary_files_of_torch(directory: Path) -> None:
    import torch

    for name in ("model.pt", "checkpoint.pt"):
        assert torch.load(directory / name, weights_only=True)


def test_a_completed_run_on_a_read_only_disk_is_completed_before(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(*arguments: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system", "outputs/.locks")

    monkeypatch.setattr("cmr_runner.commands.execution.run_lock", read_only)
    done = call(tmp_path, *WORDS)
    assert (done.returncode, done.stderr) == (0, "")
    assert "completed before" in done.stdout
    other = call(tmp_path, *WORDS, "seed=1")
    assert other.returncode == 2
    assert "Read-only file system" in other.stderr
    assert run_lock is not read_only


PRECIOUS = {"thesis.tex": "years of work", "data/numbers.csv": "1,2,3"}


def put_precious(place: Path) -> None:
    for name, text in PRECIOUS.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)


@pytest.mark.parametrize("force", ["force=true", "force=false"])
@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("precious", ("hydra.run.dir=precious",)),
        (".", ("hydra.run.dir=.",)),
        (".", ("hydra.run.dir=",)),
        ("outputs", ("hydra.run.dir=outputs",)),
        ("outputs/precious", ("hydra.run.dir=outputs/precious",)),
        ("outputs/precious", ("hydra.run.dir=outputs/other/../precious",)),
        ("precious", ("-m", "seed=0,1", "hydra.sweep.dir=precious", "hydra.sweep.subdir=.")),
        ("outputs/precious", ("-m", "seed=0,1", "hydra.sweep.dir=outputs/precious", "hydra.sweep.subdir=.")),
        ("precious", ("-m", "seed=0,1", "hydra.sweep.subdir=../../precious")),
        ("outputs/precious/a", ("-m", "seed=0,1", "hydra.sweep.dir=outputs/precious/a", "hydra.sweep.subdir=")),
    ],
)
def test_a_directory_that_is_no_run_is_refused_and_kept(
    place: str, words: tuple[str, ...], force: str, tmp_path: Path
) -> None:
    put_precious(tmp_path / place)
    done = call(tmp_path, *WORDS, *words, force)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert {name: (tmp_path / place / name).read_text() for name in PRECIOUS} == PRECIOUS
    assert not list(tmp_path.rglob("run.json"))


def test_force_does_not_remove_the_run_of_another_configuration(directory: Path, tmp_path: Path) -> None:
    before = results(directory)
    done = call(tmp_path, *WORDS, "seed=5", "force=true", f"hydra.run.dir={directory.relative_to(tmp_path)}")
    assert done.returncode == 1
    assert "another configuration" in done.stderr
    assert results(directory) == before


def test_a_stranger_where_the_old_run_would_stand_aside_is_kept(directory: Path, tmp_path: Path) -> None:
    old = directory.with_name(f"{directory.name}.old")
    put_precious(old)
    assert "completed before" in call(tmp_path, *WORDS).stdout
    done = call(tmp_path, *WORDS, "force=true")
    assert done.returncode == 2
    assert str(old) in done.stderr
    assert {name: (old / name).read_text() for name in PRECIOUS} == PRECIOUS


@pytest.mark.parametrize("value", ["''", "null", "[a,b]", "5", "true", "'  '", "{a: 1}"])
@pytest.mark.parametrize("sweep", [False, True])
def test_a_bad_output_root_is_refused_before_anything_is_written(value: str, sweep: bool, tmp_path: Path) -> None:
    words = ("-m", "seed=0,1") if sweep else ()
    done = call(tmp_path, *words, f"output_root={value}")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("cmr-run: output_root must be a path")
    assert not list(tmp_path.iterdir())
    assert not Path("/single").exists()
    assert done.stdout == ""


def test_rerunning_from_a_pickle_is_refused(tmp_path: Path) -> None:
    for option in ("--experimental-rerun", "--exp"):  # abbreviations count
        done = call(tmp_path, option, "job.pkl")
        assert done.returncode == 2
        (line,) = done.stderr.splitlines()
        assert "--experimental-rerun job.pkl" in line
