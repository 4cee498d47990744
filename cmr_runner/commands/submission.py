"""Jobs that submitit runs, in Slurm or as processes of their own: waiting for all of them, past those that die.

submitit by itself asks Slurm's accounting, which many clusters do not have, and gives up a whole sweep with the first
job that leaves no result. Here Slurm's queue is asked, and a job without a result is one that failed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from hydra.core.utils import JobReturn, JobStatus
from submitit.core.core import Job
from submitit.core.utils import UncompletedJobError
from submitit.slurm.slurm import SlurmInfoWatcher, SlurmJob

from cmr_runner.commands.jobs import job_directory
from cmr_runner.commands.journal import Journal, stopped_outcome
from cmr_runner.commands.streams import say
from cmr_runner.runs.directory import RunDirectory
from cmr_runner.runs.outcome import Outcome

POLL_SECONDS = 30  # at most, between looks at the queue: one squeue serves all jobs
# States from which a job does not come back. A requeued one is PENDING again.
ENDED = ("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "TIMEOUT", "GONE")


class QueueWatcher(SlurmInfoWatcher):
    """States of jobs by squeue, which needs no accounting."""

    def is_done(self, job_id: str, mode: str = "standard") -> bool:
        return self.get_state(job_id, mode=mode) in ENDED

    def update(self) -> None:
        waiting = self._registered - self._finished
        if not waiting:
            return
        self._last_status_check = time.time()
        numbers = ",".join(sorted({job_id.split("_")[0] for job_id in waiting}))
        words = ["squeue", "--noheader", "--array", "--states=all", "--format=%i %T", f"--jobs={numbers}"]
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return  # the controller may be busy or restarting: ask again later
        if done.returncode and "Invalid job id" not in done.stderr:
            return
        states = dict(line.split()[:2] for line in done.stdout.splitlines())
        # The queue forgets a job some minutes after its end.
        self._info_dict.update({job_id: {"State": states.get(job_id, "GONE")} for job_id in waiting})
        self._finished |= {job_id for job_id in waiting if self.is_done(job_id, mode="cache")}


class Submissions:
    """The jobs of one sweep that were given to submitit."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.announced: set[str] = set()
        self.cancelled = False

    def tame(self) -> None:
        """Make Hydra's launcher wait by `result`: it calls Job.results of each job in turn."""
        SlurmJob.watcher = QueueWatcher(delay_s=POLL_SECONDS)
        waited_on: Any = Job
        waited_on.results = lambda submitted: [self.result(submitted)]

    def result(self, submitted: Job[JobReturn]) -> JobReturn:
        """What the job returned, or a failed one in its place. Waits for it."""
        self._announce(submitted)
        while not submitted.done():
            self._cancel_waiting()
            time.sleep(1)
        submission = submitted.submission()
        overrides, number = submission.args[0], submission.args[2]
        if number not in self.journal.in_flight():
            submitted._results_timeout_s = 0  # nothing will come: do not wait for a slow disk
        try:
            ending, value = submitted._get_outcome_and_result()
        except UncompletedJobError:
            ending, value = "lost", ""
        if ending == "success":
            return value
        if number not in self.journal.outcomes():
            directory = _directory(submission.function, overrides)
            outcome = _lost(submitted, directory, self.journal) if ending == "lost" else _broken(value, directory)
            self.journal.report(number, outcome)
        return JobReturn(overrides=overrides, _return_value=float("nan"), status=JobStatus.COMPLETED)

    def _announce(self, submitted: Job[JobReturn]) -> None:
        number = submitted.job_id.split("_")[0]
        if isinstance(submitted, SlurmJob) and number not in self.announced:
            self.announced.add(number)
            logs = Path(submitted.paths.folder).parent
            say(f"submitted as Slurm job {number}; logs: {logs}; Ctrl-C stops the jobs, {leave_text()}")

    def _cancel_waiting(self) -> None:
        """Once a stop is asked for, take the jobs that have not started out of Slurm's queue."""
        if self.announced and not self.cancelled and self.journal.stop_requested():
            self.cancelled = True
            words = ["scancel", "--state=PENDING", *sorted(self.announced)]
            subprocess.run(words, stdout=sys.stderr, timeout=60, check=False)


def leave_text() -> str:
    return f"kill -HUP {os.getpid()} or a log-out leaves them running"


def _directory(launcher: Any, overrides: list[str]) -> Path:
    """Where the job of these overrides keeps its run."""
    config = launcher.hydra_context.config_loader.load_sweep_config(launcher.config, overrides)
    return job_directory(config)


def _lost(submitted: Job[JobReturn], directory: Path, journal: Journal) -> Outcome:
    """A job that ended without a word: cancelled before it started, killed, or out of memory."""
    state = submitted.state
    record = RunDirectory(directory).read()
    if state == "CANCELLED" or journal.stop_requested():
        return stopped_outcome(directory, "cancelled in the queue")
    log = submitted.paths.stdout
    said = f"Slurm says {state}" if isinstance(submitted, SlurmJob) else "its process was killed"
    epoch = f" after epoch {record['final']['epoch']}" if record and record.get("final") else ""
    return Outcome("failed", str(directory), f"no result{epoch}: {said}; log: {log}")


def _broken(trace: str, directory: Path) -> Outcome:
    """A job that could not so much as begin: what it ended with, in one line."""
    lines = trace.strip().splitlines()
    return Outcome("failed", str(directory), lines[-1] if lines else "no result")
