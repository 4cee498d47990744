"""Sweeps through a real Slurm: failures, time limits, scancel, and the end of the process on the login node."""

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from run_process import PATIENCE, by_name, call, directories, record, start, table, when
from slurm import Slurm, missing, one_node

from cmr_runner.runs.columns import METRICS

pytestmark = pytest.mark.slow

LONG = "trainer.epochs=150"  # seconds, on networks this small
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
    def submit(*words: str) -> subprocess.Popen[str]:
        launcher = ("hydra/launcher=submitit_slurm", "hydra.launcher.timeout_min=10")
        return start(tmp_path, "-m", *words, *launcher, **slurm.environment)

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


def with_rows(root: Path) -> list[Path]:
    return [directory for directory in directories(root) if (directory / METRICS).is_file()]


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
    long = "trainer.epochs=500"  # not over before this test has found its process, on a busy machine either
    process = submitted(long)
    assert when(process, lambda: bool(with_rows(tmp_path)))
    (holder,) = tmp_path.glob("outputs/single/.locks/*.json")
    worker = json.loads(holder.read_text())["pid"]
    os.kill(worker, signal.SIGSTOP)  # however fast it trains, the signal finds it training
    limit(slurm, minutes=1)  # less than signal_delay_s: Slurm signals the job when it next looks
    assert when(process, lambda: pending_signal(worker, signal.SIGUSR2))
    with contextlib.suppress(ProcessLookupError):
        os.kill(worker, signal.SIGCONT)
    (directory,) = directories(tmp_path)
    assert when(process, lambda: record(directory)["status"] == "interrupted")
    assert "queued" in record(directory)["error"]["message"]
    limit(slurm, minutes=10)
    code, said = ended(process)
    assert (code, table(said)) == (0, {0: "resumed"})
    assert by_name(tmp_path) == serial(tmp_path, long)


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
    words = (LONG, "seed=0,1")
    process = submitted(*words, IN_TURN)
    assert when(process, lambda: bool(with_rows(tmp_path)))
    slurm.call("scancel", job_id(slurm, 1))
    slurm.call("scancel", job_id(slurm, 0))
    code, said = ended(process)
    assert (code, table(said)) == (130, {0: "interrupted", 1: "not"})
    code, said = ended(submitted(*words))
    assert (code, table(said)) == (0, {0: "resumed", 1: "completed"})
    assert by_name(tmp_path) == serial(tmp_path, *words)


def test_jobs_go_on_when_the_log_in_session_ends(submitted, slurm: Slurm, tmp_path: Path) -> None:
    process = submitted(LONG)
    assert when(process, lambda: bool(with_rows(tmp_path)))
    process.send_signal(signal.SIGHUP)
    code, said = ended(process)
    assert code == 128 + signal.SIGHUP
    assert table(said) == {0: "left"}
    (directory,) = directories(tmp_path)
    slurm.until(lambda: not slurm.jobs())
    assert record(directory)["status"] == "completed"
    assert table(call(tmp_path, "-m", LONG).stdout) == {0: "skipped"}


def test_ctrl_c_stops_the_jobs_and_says_how_to_leave_them(submitted, slurm: Slurm, tmp_path: Path) -> None:
    process = submitted(LONG, "seed=0,1", IN_TURN)
    assert when(process, lambda: bool(with_rows(tmp_path)))
    process.send_signal(signal.SIGINT)
    code, said = ended(process)
    assert (code, table(said)) == (128 + signal.SIGINT, {0: "interrupted", 1: "not"})
    assert f"kill -HUP {process.pid}" in said
    assert slurm.jobs() == {}
