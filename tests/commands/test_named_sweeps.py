"""A sweep with a name of its own: where it is kept, what it prints at its end, and how its figures are called."""

import csv
from pathlib import Path

from run_process import call, directories, only_directory, record

from cmr_runner.commands.plot import main as plot


def test_a_named_sweep_is_kept_and_drawn_under_its_name_and_keeps_its_identity(tmp_path: Path) -> None:
    words = ("-m", "trainer.epochs=1", "regularizer=none,cmr", "seed=0,1")
    done = call(tmp_path, *words, "name=my_sweep", "spectra=all")
    assert done.returncode == 0, done.stderr
    runs = directories(tmp_path)
    assert {run.parent.name for run in runs} == {"my_sweep"}
    results = done.stdout[done.stdout.rindex("results ") :].splitlines()
    assert results[0].split()[:3] == ["results", "n", "accuracy"]
    accuracies = [float(line.split()[2]) for line in results[2:4]]
    assert accuracies == sorted(accuracies, reverse=True)
    assert [line.split()[1] for line in results[2:4]] == ["2", "2"]
    assert done.stdout.endswith("4 jobs: 4 completed; files: outputs/my_sweep\n")
    assert plot([str(tmp_path / "outputs"), "--dpi", "50", "--jobs", "1", "--all"]) == 0
    drawn = {path.parent.name for path in (tmp_path / "outputs" / "figures").rglob("*.png")}
    assert drawn == {"my_sweep"}
    assert "my_sweep/comparison" in (tmp_path / "outputs" / "figures" / "captions.md").read_text()
    plain = call(tmp_path, *words, "spectra=all")
    assert plain.returncode == 0
    assert {record(run)["identity"]["hash"] for run in directories(tmp_path) if run.parent.name == "single"} == {
        record(run)["identity"]["hash"] for run in runs
    }


def test_a_name_that_is_no_plain_word_is_one_line(tmp_path: Path) -> None:
    done = call(tmp_path, "name=../elsewhere")
    assert done.returncode == 2
    assert done.stderr == (
        "cmr-run: name must be letters, digits, '.', '_' and '-' only, 60 at most, got '../elsewhere'\n"
    )
    assert not (tmp_path / "outputs").exists()


def test_spectra_all_keeps_every_epoch_and_is_another_run_than_the_default(tmp_path: Path) -> None:
    assert call(tmp_path, "trainer.epochs=2", "progress=none", "spectra=ends").returncode == 0
    ends = only_directory(tmp_path)
    done = call(tmp_path, "trainer.epochs=2", "progress=none", "spectra=all")
    (every,) = set(directories(tmp_path)) - {ends}
    epochs = [{row["epoch"] for row in csv.DictReader((run / "spectra.csv").open())} for run in (ends, every)]
    assert epochs == [{"0", "2"}, {"0", "1", "2"}]
    assert done.stdout.startswith("files: ")  # the one thing that progress=none still says
