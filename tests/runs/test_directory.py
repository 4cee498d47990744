"""Records, atomic files, the lock, and directories that stand aside."""

import errno
import json
import math
import os
from pathlib import Path

import pytest

from cmr_runner.runs import aside, atomic
from cmr_runner.runs.columns import LAYERS, METRICS, SPECTRA
from cmr_runner.runs.directory import RunDirectory
from cmr_runner.runs.lock import Held, run_lock
from cmr_runner.runs.provenance import differences, provenance
from cmr_runner.runs.records import Records


def epoch(number: int) -> tuple[dict, list[dict], list[dict]]:
    metrics = {"epoch": number, "train_loss": None if number == 0 else 0.1 + 0.2, "kappa_mean": math.nan}
    return metrics, [{"epoch": number, "layer": "a"}], [{"epoch": number, "layer": "a", "sigma": 1 / 3}]


def test_records_continued_from_their_text_are_the_same_bytes() -> None:
    whole, first = Records(), Records()
    for number in range(4):
        whole.add_epoch(*epoch(number))
    first.add_epoch(*epoch(0))
    first.add_epoch(*epoch(1))
    second = Records(first.texts)
    second.add_epoch(*epoch(2))
    second.add_epoch(*epoch(3))
    assert second.texts == whole.texts


def test_numbers_read_back_exactly_and_undefined_cells_are_empty() -> None:
    records = Records()
    records.add_epoch(*epoch(0))
    records.add_epoch(*epoch(1))
    assert records.texts[METRICS] == "epoch,train_loss,kappa_mean\n0,,nan\n1,0.30000000000000004,nan\n"
    last = records.last_metrics()
    assert last is not None
    assert (last["epoch"], last["train_loss"]) == (1, 0.1 + 0.2)


def test_spectra_keep_the_first_and_the_newest_epoch() -> None:
    records = Records()
    for number in range(4):
        records.add_epoch(*epoch(number))
    assert [row["epoch"] for row in records.rows(SPECTRA)] == ["0", "3"]
    assert [row["epoch"] for row in records.rows(LAYERS)] == ["0", "1", "2", "3"]


def test_a_write_that_fails_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    atomic.replace_file(path, b"old")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        atomic.replace_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_run_json_is_strict_json_also_with_nan(tmp_path: Path) -> None:
    RunDirectory(tmp_path).write({"final": {"kappa_mean": math.nan, "seconds": 1.0}})
    text = (tmp_path / "run.json").read_text()
    assert json.loads(text, parse_constant=pytest.fail)["final"] == {"kappa_mean": None, "seconds": 1.0}


def test_a_held_lock_names_its_holder(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    holder = rf"process {os.getpid()} .*cmr-run seed=3"
    with run_lock(directory, "cmr-run seed=3"), pytest.raises(Held, match=holder), run_lock(directory, "another"):
        pass
    with run_lock(directory, "free again"):
        pass


def run_at(path: Path, status: str) -> None:
    path.mkdir(parents=True, exist_ok=True)
    RunDirectory(path).write({"status": status, "who": path.name})


def test_a_forced_run_that_never_began_gives_the_old_result_back(tmp_path: Path) -> None:
    path = tmp_path / "run"
    run_at(path, "completed")
    aside.move_aside(path)
    assert not path.exists()
    path.mkdir()  # Hydra makes it before anything is known
    (path / ".run.json.tmp-1").touch()  # and the kill came while the first file was written
    aside.settle(path)
    assert RunDirectory(path).status() == "completed"
    assert not aside.aside_path(path).exists()


def test_an_unfinished_forced_run_keeps_the_old_result_aside(tmp_path: Path) -> None:
    path = tmp_path / "run"
    run_at(path, "completed")
    aside.move_aside(path)
    run_at(path, "running")
    aside.settle(path)
    assert RunDirectory(path).status() == "running"
    aside.move_aside(path)  # forced once more: the unfinished try goes, the result stays
    assert not path.exists()
    assert RunDirectory(aside.aside_path(path)).status() == "completed"


def test_what_stood_aside_goes_once_the_new_run_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "run"
    run_at(path, "completed")
    aside.move_aside(path)
    run_at(path, "completed")
    aside.settle(path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["run"]


def test_a_change_of_version_threads_or_code_is_named() -> None:
    now = provenance(seed=0, threads=1, device="cpu", instructions="AVX2", command="cmr-run")
    assert differences(now, now) == []
    then = {**now, "versions": {**now["versions"], "torch": "1.0"}, "threads": 4, "code": "0123"}
    named = differences(then, now)
    assert [phrase.split()[0] for phrase in named] == ["torch", "cmr_runner's", "threads"]
    assert "torch was 1.0, is" in named[0]
