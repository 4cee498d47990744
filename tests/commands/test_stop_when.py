"""trainer.stop_when through cmr-run: a run that is given up, and all that is said of it."""

import json
import math
from pathlib import Path

import pytest
from run_process import Instant, call, directories, frozen, kill, only_directory, record, results, run, table

from cmr_runner.commands.plot import main as plot
from cmr_runner.commands.report import main as report

# Nothing is learned, so that no epoch is better than the start; and κ is above 1 from the first epoch on.
HOPELESS = ("dataset.validation=8", "optimizer.lr=1e-12", "trainer.epochs=6", "trainer.stop_when.patience=3")


def test_a_hopeless_run_is_stopped_with_its_rows_and_its_reason(tmp_path: Path, capsys) -> None:
    done = call(tmp_path, *HOPELESS)
    assert done.returncode == 0, done.stderr
    directory = only_directory(tmp_path)
    said = record(directory)
    assert (said["status"], said["final"]["epoch"]) == ("stopped", 3)
    reason = said["error"]["message"]
    assert reason.startswith("stopped after epoch 3: no better validation accuracy than")
    assert reason in done.stdout
    assert "epoch 3/6" in done.stdout
    assert len((directory / "metrics.csv").read_text().splitlines()) == 5
    assert {"metrics.csv", "layers.csv", "spectra.csv", "model.pt"} == set(said["files"])

    again = call(tmp_path, *HOPELESS)
    assert again.returncode == 0
    assert f"{reason}; force=true runs it again" in again.stdout
    assert "epoch 4" not in again.stdout
    assert call(tmp_path, *HOPELESS, "dry=true").stdout.splitlines()[2].split()[1] == "stopped"

    assert plot([str(tmp_path / "outputs"), "--list"]) == 0
    assert reason in capsys.readouterr().out
    assert report([str(tmp_path / "outputs")]) == 0
    assert reason in (tmp_path / "outputs/report/summary.md").read_text()
    assert reason in (tmp_path / "outputs/report/report.html").read_text()


def test_a_sweep_goes_past_stopped_runs_and_their_reasons_stand_in_its_table(tmp_path: Path) -> None:
    words = ("-m", "trainer.epochs=2", "trainer.stop_when.loss=1e-3,null", "trainer.stop_when.kappa=null", "seed=0")
    done = call(tmp_path, *words, "on_failure=stop")
    assert done.returncode == 0, done.stderr
    assert table(done.stdout) == {0: "stopped", 1: "completed"}
    assert "is over 0.001" in done.stdout[done.stdout.rindex("job  outcome") :]


def test_a_run_that_ends_with_the_epoch_of_the_rule_is_complete(tmp_path: Path) -> None:
    assert call(tmp_path, *HOPELESS, "trainer.epochs=3").returncode == 0
    assert record(only_directory(tmp_path))["status"] == "completed"


def test_a_rule_of_nulls_leaves_the_identity_as_it_was_and_any_other_gives_a_new_one(tmp_path: Path) -> None:
    assert call(tmp_path, "trainer.epochs=1").returncode == 0
    before = only_directory(tmp_path)
    for words in (("trainer.stop_when=null",), ("trainer.stop_when.kappa=null",)):
        assert "completed before" in call(tmp_path, "trainer.epochs=1", *words).stdout
    config = json.loads((before / "run.json").read_text())["config"]
    assert config["trainer"]["stop_when"]["patience"] is None
    assert call(tmp_path, "trainer.epochs=1", "trainer.stop_when.kappa=1e9").returncode == 0
    assert len(directories(tmp_path)) == 2


@pytest.mark.parametrize(
    ("word", "complaint"),
    [
        ("trainer.stop_when.patience=2", "trainer.stop_when.patience=2 needs a validation part"),
        ("trainer.stop_when.patience=0", "trainer.stop_when.patience must be an integer >= 1, got 0"),
        ("trainer.stop_when.kappa=wide", "trainer.stop_when.kappa must be a number or null, got 'wide'"),
        ("trainer.stop_when.kapa=3", "did you mean trainer.stop_when.kappa?"),
    ],
)
def test_mistakes_in_a_rule_are_named(word: str, complaint: str, tmp_path: Path) -> None:
    done = call(tmp_path, word)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert directories(tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("instant", [Instant("metrics.csv", 4), Instant("model.pt")])
def test_a_killed_run_stops_at_the_same_epoch_with_the_same_bytes(instant: Instant, tmp_path: Path) -> None:
    calm, rough = tmp_path / "calm", tmp_path / "rough"
    calm.mkdir(), rough.mkdir()
    assert call(calm, *HOPELESS).returncode == 0
    kill(frozen(rough, instant, *HOPELESS))
    assert record(only_directory(rough))["status"] == "running"
    done = run(rough, *HOPELESS)
    assert done.returncode == 0, done.stderr
    assert "resumed after epoch" in done.stdout
    assert record(only_directory(rough))["error"] == record(only_directory(calm))["error"]
    assert results(only_directory(rough)) == results(only_directory(calm))


def test_a_stopped_job_returns_its_last_validation_accuracy(tmp_path: Path) -> None:
    from cmr_runner.commands.run import objective
    from cmr_runner.runs.outcome import Outcome

    assert call(tmp_path, *HOPELESS).returncode == 0
    directory = only_directory(tmp_path)
    value = objective(Outcome("stopped", str(directory)))
    assert math.isfinite(value)
    assert value == record(directory)["final"]["val_accuracy"]
