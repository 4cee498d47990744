"""What the jobs of one sweep tell each other, whichever launcher runs them: outcomes, and a request to stop.

Launchers differ in what they bring back and when, and lose it all with a worker that dies. A directory that every
job can reach is the same under all of them: each job leaves its outcome there, and looks there for a stop.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import time
from collections.abc import Collection
from pathlib import Path

from cmr_runner.commands.signals import STOP
from cmr_runner.runs.atomic import replace_file
from cmr_runner.runs.directory import FINAL_STATUSES, RunDirectory
from cmr_runner.runs.outcome import FAILURE, Outcome

JOURNALS = ".sweeps"
VARIABLE = "CMR_RUNNER_SWEEP"
LOOK_SECONDS = 0.5  # between looks for a stop: a look is one stat, which may cross a network


class Journal:
    """One sweep's directory of outcomes, named after the process that runs the sweep."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def current(cls) -> Journal | None:
        """The journal of the sweep that this process is part of."""
        path = os.environ.get(VARIABLE)
        return cls(Path(path)) if path else None

    @classmethod
    def open(cls, output_root: Path) -> Journal:
        """A fresh one, or this process's own, if its sweep is started again."""
        current = cls.current()
        if current is not None and current.pid == os.getpid() and current.path.is_dir():
            return current
        journals = output_root.absolute() / JOURNALS
        _remove_abandoned(journals)
        journal = cls(journals / f"{socket.gethostname()}-{os.getpid()}")
        journal.path.mkdir(parents=True, exist_ok=True)
        os.environ[VARIABLE] = str(journal.path)
        return journal

    @property
    def pid(self) -> int:
        """The process that runs the sweep."""
        return int(self.path.name.rpartition("-")[2])

    def close(self) -> None:
        os.environ.pop(VARIABLE, None)
        shutil.rmtree(self.path, ignore_errors=True)
        with contextlib.suppress(OSError):  # another sweep's journal is in there
            self.path.parent.rmdir()

    def report(self, number: int, outcome: Outcome) -> None:
        with contextlib.suppress(OSError):  # full disk, or the sweep is gone: run.json still says what happened
            replace_file(self.path / f"{number:06d}.json", json.dumps(outcome.as_dict()).encode())

    def outcomes(self, but: Collection[int] = ()) -> dict[int, Outcome]:
        """Of the jobs that have ended; those of `but` are not read again."""
        found = {}
        for path in sorted(self.path.glob("[0-9]*.json")):
            if int(path.stem) not in but:
                found[int(path.stem)] = Outcome(**json.loads(path.read_text(encoding="utf-8")))
        return found

    def began(self) -> list[float]:
        """When each job that runs was started, by the clock of the disk."""
        times = []
        for path in self.path.glob("[0-9]*.started"):
            with contextlib.suppress(OSError):  # it ended or waits again
                if not path.with_suffix(".json").exists():
                    times.append(path.stat().st_mtime)
        return times

    def start(self, number: int, directory: Path) -> Outcome | None:
        """Note that this process has job `number`; or the job's outcome, if it ended before the sweep was restarted."""
        if (self.path / f"{number:06d}.json").exists():
            return self.outcomes()[number]
        with contextlib.suppress(OSError):
            note = {"pid": os.getpid(), "directory": str(directory)}
            replace_file(self.path / f"{number:06d}.started", json.dumps(note).encode())
        return None

    def in_flight(self) -> dict[int, tuple[int, str]]:
        """Process and directory of each job that was started and has no outcome."""
        found = {}
        for path in self.path.glob("[0-9]*.started"):
            if not path.with_suffix(".json").exists():
                note = json.loads(path.read_text(encoding="utf-8"))
                found[int(path.stem)] = (note["pid"], note["directory"])
        return found

    def queued_again(self, number: int) -> None:
        """A job that had started waits again."""
        with contextlib.suppress(OSError):
            (self.path / f"{number:06d}.started").unlink()

    def left(self) -> dict[int, Outcome]:
        """Of the jobs that have started and go on without this process."""
        return {
            number: Outcome("left", directory, "goes on without this process")
            for number, (_, directory) in self.in_flight().items()
        }

    def request_stop(self) -> None:
        (self.path / "stop").touch()

    def stop_requested(self) -> bool:
        return (self.path / "stop").exists()

    def failed(self) -> bool:
        return any(outcome.kind in FAILURE for outcome in self.outcomes().values())


def stopped_outcome(directory: Path, reason: str) -> Outcome:
    """Of a job that is kept from starting: interrupted where an earlier start of it left epochs."""
    record = RunDirectory(directory).read() or {}
    if record.get("final") and record.get("status") not in FINAL_STATUSES:
        return Outcome("interrupted", str(directory), f"{reason} after epoch {record['final']['epoch']}")
    return Outcome("not started", str(directory), reason)


def _remove_abandoned(journals: Path) -> None:
    """Remove journals of sweeps on this host whose process is gone."""
    for path in journals.glob(f"{socket.gethostname()}-*"):
        pid = path.name.rpartition("-")[2]
        if pid.isdigit() and (int(pid) == os.getpid() or not alive(int(pid))):
            shutil.rmtree(path, ignore_errors=True)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # it exists and belongs to somebody else
    return True


class StopCheck:
    """Whether a job should stop: a signal to this process, the sweep's request, or a sweep that died.

    joblib's workers outlive a killed parent until their job ends and would hold its lock against the next start;
    `parent` is that process's id, None for jobs that may outlive whoever started them. A single worker is the parent.
    """

    def __init__(self, journal: Journal | None, parent: int | None) -> None:
        self.journal, self.parent = journal, parent
        self._next_look = 0.0
        self._asked = False

    def orphaned(self) -> bool:
        return self.parent is not None and self.parent not in (os.getpid(), os.getppid())

    def __call__(self) -> bool:
        if STOP.requested() or self.orphaned():
            return True
        if self.journal is not None and time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + LOOK_SECONDS
            self._asked = self._asked or self.journal.stop_requested()
        return self._asked
