"""The real cmr-run in a process of its own, on networks small enough for a test."""

import contextlib
import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from cmr_runner.commands.run import COMMAND_VARIABLE, main
from cmr_runner.runs.columns import LAYERS, METRICS, SPECTRA, TIME_COLUMNS
from cmr_runner.runs.directory import RunDirectory

TINY = (
    "dataset=synthetic",
    "dataset.train=32",
    "dataset.test=32",
    "dataset.shape=[12]",
    "model.depth=3",
    "model.width=8",
    "trainer.batch_size=16",
)
FROZEN = Path(__file__).with_name("frozen.py")
PATIENCE = 600.0  # seconds until a process that should have ended, or acted, is given up: a machine may be busy


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "cmr_runner", *TINY, *words]


def environment(**extra: str) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", **extra}


def start(cwd: Path, *words: str, **extra: str) -> subprocess.Popen[str]:
    return _process(command(*words), cwd, **extra)


class Instant(NamedTuple):
    """Just before the `time`-th rename that puts `file` in place, or `calls` Python calls after it."""

    file: str
    time: int = 1
    calls: int = 0


def frozen(cwd: Path, instant: Instant, *words: str) -> subprocess.Popen[str]:
    """cmr-run, alive and standing still at `instant`."""
    process = _process([sys.executable, str(FROZEN), *map(str, instant), *TINY, *words], cwd)
    stopped = os.WSTOPPED | os.WNOHANG | os.WNOWAIT
    at_instant = when(process, lambda: os.waitid(os.P_PID, process.pid, stopped) is not None)
    assert at_instant, (f"ended before {instant}", process.communicate())
    return process


def freezing(root: Path) -> dict[str, str]:
    """What to start a sweep with, for the first of its jobs that gets so far to stand still before its third epoch is
    written, whichever process a launcher gives it to."""
    paths = [str(FROZEN.with_name("freezing")), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"FREEZE_ONCE": str(root / "frozen"), "PYTHONPATH": os.pathsep.join(paths)}


def frozen_job(process: subprocess.Popen[str], root: Path) -> int:
    """The process of the job that stands still."""
    file = root / "frozen"
    assert when(process, lambda: file.is_file() and file.read_text() != "" and stands_still(int(file.read_text()))), (
        "ended before",
        process.communicate(),
    )
    return int(file.read_text())


def stands_still(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except OSError:  # it has ended
        return False


def thaw(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Let a frozen process go on to its end: what it said."""
    process.send_signal(signal.SIGCONT)
    return process.communicate(timeout=PATIENCE)


def _process(words: list[str], cwd: Path, **extra: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        words,
        cwd=cwd,
        env=environment(**extra),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heeding_signals,
    )


def heeding_signals() -> None:
    """As from a terminal: tests may run under nohup, whose children ignore SIGHUP and SIGINT."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def run(cwd: Path, *words: str, **extra: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*words),
        cwd=cwd,
        env=environment(**extra),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def call(cwd: Path, *words: str, base: tuple[str, ...] = TINY) -> subprocess.CompletedProcess[str]:
    """cmr-run in this process: for what needs no process of its own, since importing torch costs seconds."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        patch.chdir(cwd)
        patch.setattr(sys, "argv", ["cmr-run", *base, *words])
        # Set by main(); set here first, so that the test's end puts back what was there.
        threads = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "1000"}
        for name, value in {"HYDRA_FULL_ERROR": "0", COMMAND_VARIABLE: "", **threads}.items():
            patch.setenv(name, value)
        with pytest.raises(SystemExit) as end:
            main()
    return subprocess.CompletedProcess(words, int(end.value.code or 0), out.getvalue(), err.getvalue())


def directories(root: Path) -> list[Path]:
    """Run directories under `root`, those set aside left out."""
    return sorted(path.parent for path in root.glob("outputs/*/*/run.json") if path.parent.suffix != ".old")


def only_directory(root: Path) -> Path:
    (directory,) = directories(root)
    return directory


def record(directory: Path) -> dict:
    return json.loads((directory / "run.json").read_text())


def rewrite(directory: Path, content: dict) -> None:
    """Give a run.json another content, with the digest of that content."""
    RunDirectory(directory).write(content)


def results(directory: Path) -> dict[str, object]:
    """What must be equal between two equal runs: every CSV but for its times, and the weights, byte for byte."""
    return {
        METRICS: untimed((directory / METRICS).read_text()),
        LAYERS: (directory / LAYERS).read_bytes(),
        SPECTRA: (directory / SPECTRA).read_bytes(),
        "model.pt": (directory / "model.pt").read_bytes(),
    }


def untimed(text: str) -> list[dict[str, str]]:
    rows = list(csv.DictReader(io.StringIO(text)))
    return [{key: cell for key, cell in row.items() if key not in TIME_COLUMNS} for row in rows]


def by_name(root: Path) -> dict[str, dict[str, object]]:
    return {directory.name: results(directory) for directory in directories(root)}


def table(output: str) -> dict[int, str]:
    """Job number → outcome, from the table that ends a sweep."""
    lines = output[output.rindex("job  outcome") :].splitlines()[1:]
    return {
        int(line.split()[0]): line.split()[1] for line in lines if line.split()[0].isdigit() and "jobs:" not in line
    }


def when(process: subprocess.Popen[str], condition: Callable[[], bool], pause: float = 0.01) -> bool:
    """Wait for `condition`, looking again after `pause`; False if the process ended first."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if condition():
            return True
        if process.poll() is not None:
            return False
        time.sleep(pause)
    raise AssertionError("neither the condition nor the end of the process came")


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()
    for pipe in (process.stdout, process.stderr):  # not read to their end: workers that live on may hold them open
        assert pipe is not None
        pipe.close()
