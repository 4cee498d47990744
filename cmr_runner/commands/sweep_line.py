"""The live line of a sweep on a terminal: how many jobs are done, run and are left, and about how long."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from typing import ClassVar, TextIO

from hydra.errors import HydraException
from omegaconf import DictConfig

from cmr_runner.commands.jobs import job_overrides, side_by_side
from cmr_runner.commands.journal import Journal
from cmr_runner.commands.streams import ERASE, LIVE_VARIABLE, Forgiving
from cmr_runner.results.pace import duration
from cmr_runner.runs.outcome import Outcome

LOOK_SECONDS = 1.0
# Outcomes of jobs that took as long as a job takes.
COMPUTED = ("completed", "resumed", "stopped", "diverged")


class SweepLine:
    """Of the sweep that this process runs. `jobs` is None where the sweeper decides as it goes."""

    current: ClassVar[SweepLine | None] = None

    def __init__(self, journal: Journal, jobs: int | None, at_a_time: int) -> None:
        self.journal, self.jobs, self.at_a_time = journal, jobs, at_a_time
        self._outcomes: dict[int, Outcome] = {}
        self._text = ""
        self._next_look = 0.0
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def text(self) -> str:
        """Looked up again once a second at most."""
        if time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + LOOK_SECONDS
            self._outcomes |= self.journal.outcomes(but=self._outcomes)
            ages = [time.time() - began for began in self.journal.began()]
            self._text = line_text(self._outcomes, ages, self.jobs, self.at_a_time)
        return self._text

    def show(self, stream: TextIO) -> None:
        """Keep the line at the end of the terminal until `end`. Whatever else is said erases it first."""
        os.environ[LIVE_VARIABLE] = "1"  # the jobs' processes speak on the same terminal
        self._thread = threading.Thread(target=self._write, args=(Forgiving(stream),), daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
            os.environ.pop(LIVE_VARIABLE, None)

    def _write(self, stream: Forgiving) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            width = shutil.get_terminal_size().columns - 1
            stream.write(f"{ERASE}{self.text[:width]}\r")
            stream.flush()
        stream.write(ERASE)
        stream.flush()


def begin(journal: Journal, config: DictConfig) -> None:
    """Show the line if a person looks on. Jobs that run in turn in this process show it below their own bar."""
    end()  # of a sweep that is started again
    if config.progress not in ("auto", "live") or not sys.stdout.isatty():
        return
    try:
        jobs = job_overrides(config)
    except HydraException:
        return  # the sweeper meets it next and raises what main() reports
    SweepLine.current = SweepLine(journal, None if jobs is None else len(jobs), side_by_side(config))
    if config.hydra.runtime.choices["hydra/launcher"] != "basic":
        SweepLine.current.show(sys.stdout)


def end() -> None:
    if SweepLine.current is not None:
        SweepLine.current.end()
        SweepLine.current = None


def line_text(outcomes: dict[int, Outcome], ages: list[float], jobs: int | None, at_a_time: int) -> str:
    """`ages`: for how many seconds each of the running jobs has run."""
    done, running = len(outcomes), len(ages)
    if jobs is None:
        return f"sweep: {done} done, {running} running"
    left = max(0, jobs - done - running)
    took = [outcome.seconds for outcome in outcomes.values() if outcome.kind in COMPUTED]
    time_left = ""
    if took:
        each = sum(took) / len(took)
        work = each * left + sum(max(0.0, each - age) for age in ages)
        together = max(1, min(at_a_time, left + running))
        time_left = f", about {duration(work / together)} left"
    return f"sweep: {done} of {jobs} done, {running} running, {left} left{time_left}"
