"""kill -9 of the real command, at chosen and at random instants; the run that goes on equals one left alone."""

import random
from pathlib import Path

import pytest
from run_process import Instant, call, frozen, kill, only_directory, record, results, run

EPOCHS = "trainer.epochs=12"
CASES = {
    "cmr": ("regularizer=cmr", "optimizer=adam"),
    "spectral_norm_cmr": ("regularizer=spectral_norm_cmr", "optimizer=sgd", "optimizer.lr=0.05"),
    "cmr_learned": ("regularizer=cmr_learned", "optimizer=adam"),
}
AN_EPOCH = 10_000  # calls of Python functions, about
NEWEST, PREVIOUS = "checkpoint.pt", "checkpoint.prev.pt"
# Each kill of one run, in order: the instant (None: a random one) and the checkpoints that are there at it.
KILLS: tuple[tuple[Instant | None, set[str]], ...] = (
    (Instant("run.json"), set()),
    (Instant(NEWEST), set()),
    (Instant("metrics.csv", 2), {NEWEST, PREVIOUS}),
    (None, set()),
    (Instant("layers.csv", 2), {NEWEST, PREVIOUS}),
    (Instant(NEWEST, 2), {PREVIOUS}),  # the last one has been moved away, the next is not yet in place
    (None, set()),
)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_run_killed_seven_times_equals_one_left_alone(case: str, tmp_path: Path) -> None:
    words = (EPOCHS, *CASES[case])
    calm, rough = tmp_path / "calm", tmp_path / "rough"
    calm.mkdir(), rough.mkdir()
    assert call(calm, *words).returncode == 0
    expected = only_directory(calm)
    directory = rough / expected.relative_to(calm)

    rng = random.Random(case)
    for chosen, checkpoints in KILLS:
        instant = chosen or Instant(NEWEST, calls=rng.randrange(1, 2 * AN_EPOCH))
        process = frozen(rough, instant, *words)
        if chosen:
            assert (directory / f".{chosen.file}.tmp-{process.pid}").exists()
            assert {path.name for path in directory.glob("checkpoint*")} == checkpoints
        kill(process)

    last = run(rough, *words)
    assert last.returncode == 0, last.stderr
    assert "cannot be used" not in last.stderr
    assert "resumed after epoch" in last.stdout
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
