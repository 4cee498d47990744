"""Sweeps through a real Slurm: failures, time limits, scancel, and the end of the process on the login node."""

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from run_process import (
    PATIENCE,
    by_name,
    call,
    freezing,
    frozen_job,
    only_directory,
    record,
    start,
    table,
    when,
)
from slurm import Slurm, missing, one_node

pytestmark = pytest.mark.slow

SHORT = "trainer.epochs=4"
LONG = "trainer.epochs=5000"  # not over before it is told to stop
IN_TURN = "hydra.launcher.array_parallelism=1"


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    reason = missing()
    if reason and "CI" not in os.environ:
        pytest.skip(reason)
    assert not reason, reason
    with one_node() as running:
        yield running


@pytest.fixture
def submitted(slurm: Slurm, tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a sweep; of one that is to freeze, the first job stands still before its third epoch is written."""

    def submit(*words: str, freeze: bool = False) -> subprocess.Popen[str]:
        launcher = ("hydra/launcher=submitit_slurm", "hydra.launcher.timeout_min=10")
        frozen = freezing(tmp_path) if freeze else {}
        return start(tmp_path, "-m", *launcher, *words, **slurm.environment, **frozen)

    yield submit
    slurm.clear()


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    out, err = process.communicate(timeout=PATIENCE)
    assert "sacct" not in out + err
    assert "WARNING" not in out + err
    return process.returncode, err + out


def serial(root: Path, *words: str) -> dict[str, dict[str, object]]:
    """The same sweep, one job after the other, left alone."""
    calm = root / "calm"
    calm.mkdir()
    call(calm, "-m", *words)
    return by_name(calm)


def job_id(slurm: Slurm, index: int) -> str:
    """Of the job with this index in the only array of the queue."""
    (found,) = (name for name in slurm.jobs() if name.endswith(f"_{index}") or "_" not in name)
    return found


def test_a_sweep_equals_the_serial_one_and_goes_past_a_failure(submitted, tmp_path: Path) -> None:
    words = ("trainer.epochs=2", "regularizer.lam=0.02,-1,0.1")
    code, said = ended(submitted(*words))
    assert code == 1
    assert table(said) == {0: "completed", 1: "failed", 2: "completed"}
    assert "lam must be >= 0, got -1" in said
    assert by_name(tmp_path) == serial(tmp_path, *words)


def test_a_job_at_its_time_limit_is_queued_again_and_ends_bit_equal(submitted, slurm: Slurm, tmp_path: Path) -> None:
    process = submitted(SHORT, "hydra.launcher.timeout_min=60", "hydra.launcher.signal_delay_s=600", freeze=True)
    worker = frozen_job(process, tmp_path)
    with slurm.starting_nothing():  # until what the job leaves has been looked at
        limit(slurm, minutes=10)  # no more than signal_delay_s: Slurm signals the job when it next looks
        assert when(process, lambda: pending_signal(worker, signal.SIGUSR2))
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, signal.SIGCONT)
        directory = only_directory(tmp_path)
        assert when(process, lambda: record(directory)["status"] == "interrupted")
        assert "queued" in record(directory)["error"]["message"]
        slurm.until(lambda: set(slurm.jobs().values()) == {"PENDING"})
        limit(slurm, minutes=60)
    code, said = ended(process)
    assert (code, table(said)) == (0, {0: "resumed"})
    assert by_name(tmp_path) == serial(tmp_path, SHORT)


def limit(slurm: Slurm, minutes: int) -> None:
    slurm.call("scontrol", "update", f"JobId={job_id(slurm, 0)}", f"TimeLimit={minutes}")


def pending_signal(pid: int, number: int) -> bool:
    """Whether the signal waits for the process, or woke it up: Slurm may continue what it signals."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except FileNotFoundError:
        return True
    masks = [int(line.split()[1], 16) for line in lines if line.startswith(("SigPnd", "ShdPnd"))]
    return any(mask >> (number - 1) & 1 for mask in masks)


def test_cancelled_jobs_are_told_apart_and_the_same_command_completes_them(
    submitted, slurm: Slurm, tmp_path: Path
) -> None:
    words = (SHORT, "seed=0,1")
    process = submitted(*words, IN_TURN, freeze=True)
    frozen_job(process, tmp_path)
    slurm.call("scancel", job_id(slurm, 1))
    slurm.call("scancel", job_id(slurm, 0))  # which continues what stands still
    code, said = ended(process)
    assert (code, table(said)) == (130, {0: "interrupted", 1: "not"})
    code, said = ended(submitted(*words))
    assert (code, table(said)) == (0, {0: "resumed", 1: "completed"})
    assert by_name(tmp_path) == serial(tmp_path, *words)


def test_a_job_that_dies_without_a_word_failed_and_its_log_is_named(submitted, tmp_path: Path) -> None:
    process = submitted(SHORT, freeze=True)
    os.kill(frozen_job(process, tmp_path), signal.SIGKILL)
    code, said = ended(process)
    assert (code, table(said)) == (1, {0: "failed"})
    found = re.search(r"Slurm says (\w+); log: (\S+)", said)
    assert found is not None
    assert found[1] in ("FAILED", "GONE")
    assert Path(found[2]).is_file()
    assert (tmp_path / "outputs/single/.submitit") in Path(found[2]).parents


@pytest.mark.parametrize("leaving", [signal.SIGHUP, signal.SIGTERM])
def test_jobs_go_on_when_the_log_in_session_ends(submitted, slurm: Slurm, tmp_path: Path, leaving: int) -> None:
    process = submitted(SHORT, freeze=True)
    worker = frozen_job(process, tmp_path)
    process.send_signal(leaving)
    code, said = ended(process)
    assert code == 128 + leaving
    assert table(said) == {0: "left"}
    os.kill(worker, signal.SIGCONT)
    slurm.until(lambda: not slurm.jobs())
    assert record(only_directory(tmp_path))["status"] == "completed"
    assert table(call(tmp_path, "-m", SHORT).stdout) == {0: "skipped"}


def test_ctrl_c_stops_the_jobs_and_says_how_to_leave_them(submitted, slurm: Slurm, tmp_path: Path) -> None:
    process = submitted(LONG, "seed=0,1", IN_TURN, freeze=True)
    worker = frozen_job(process, tmp_path)
    process.send_signal(signal.SIGINT)
    assert when(process, lambda: any(tmp_path.glob("outputs/.sweeps/*/stop")))
    os.kill(worker, signal.SIGCONT)
    code, said = ended(process)
    assert (code, table(said)) == (128 + signal.SIGINT, {0: "interrupted", 1: "not"})
    assert f"kill -HUP {process.pid}" in said
    assert slurm.jobs() == {}
