"""kill -9 of the real command, at chosen and at random instants; the run that goes on equals one left alone."""

import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from run_process import kill, only_directory, record, results, run, start, when

EPOCHS = "trainer.epochs=12"
CASES = {
    "cmr": ("regularizer=cmr", "optimizer=adam"),
    "spectral_norm_cmr": ("regularizer=spectral_norm_cmr", "optimizer=sgd", "optimizer.lr=0.05"),
    "cmr_learned": ("regularizer=cmr_learned", "optimizer=adam"),
}
# Each kill of one run, in order: something that is in the directory at that instant, or a random moment.
INSTANTS = (
    "run.json",
    ".checkpoint.pt.tmp-",
    ".metrics.csv.tmp-",
    "random",
    ".layers.csv.tmp-",
    "no checkpoint.pt",
    "random",
)


def instant_of(name: str, directory: Path, rng: random.Random) -> Callable[[], bool]:
    """The condition that is true at the instant called `name`."""
    if name == "random":
        moment = time.monotonic() + rng.uniform(0.0, 6.0)
        return lambda: time.monotonic() >= moment
    if name == "no checkpoint.pt":
        # Between the rename of the last checkpoint and that of the next.
        return lambda: "checkpoint.prev.pt" in (names := _names(directory)) and "checkpoint.pt" not in names
    return lambda: any(entry.startswith(name) for entry in _names(directory))


def written_at(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def _names(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)
    except FileNotFoundError:
        return []


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_run_killed_seven_times_equals_one_left_alone(case: str, tmp_path: Path) -> None:
    words = (EPOCHS, *CASES[case])
    calm, rough = tmp_path / "calm", tmp_path / "rough"
    calm.mkdir(), rough.mkdir()
    assert run(calm, *words).returncode == 0
    expected = only_directory(calm)
    directory = rough / expected.relative_to(calm)

    rng = random.Random(case)
    kills = 0
    for name in INSTANTS:
        before = written_at(directory / "run.json")
        process = start(rough, *words)
        instant = instant_of(name, directory, rng)
        if name != "random":
            # A temporary file lives for a millisecond: look without pause, but not while torch is imported.
            assert when(process, lambda before=before: written_at(directory / "run.json") != before, pause=0.002)
        kills += when(process, instant, pause=0.0)
        kill(process)
    assert kills == len(INSTANTS), f"the run ended before it could be killed {len(INSTANTS)} times"

    last = run(rough, *words)
    assert last.returncode == 0, last.stderr
    assert "cannot be used" not in last.stderr
    assert record(directory)["status"] == "completed"
    assert results(directory) == results(expected)
    assert not list(directory.glob(".*.tmp-*"))


def test_a_completed_run_is_skipped_and_says_so(tmp_path: Path) -> None:
    first = run(tmp_path, "trainer.epochs=1")
    before = {path: path.stat().st_mtime_ns for path in only_directory(tmp_path).iterdir() if path.is_file()}
    again = run(tmp_path, "trainer.epochs=1", "seed=0")
    assert (first.returncode, again.returncode) == (0, 0)
    assert "completed before" in again.stdout
    assert {path: path.stat().st_mtime_ns for path in before} == before
