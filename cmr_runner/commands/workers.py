"""Which job a killed worker of joblib's had: joblib itself only says that one died, and ends all the others too."""

from __future__ import annotations

import contextlib
import os
import select
import threading
from typing import TYPE_CHECKING

from cmr_runner.runs.outcome import Outcome

if TYPE_CHECKING:
    from cmr_runner.commands.journal import Journal

LOOK_SECONDS = 0.1
PATIENCE_SECONDS = 5.0  # for the report of a death that joblib has noticed
KILLED = "its process was killed (out of memory?); the same command resumes it"


class DeathWatch:
    """Watches the workers of one sweep, as long as it has its journal, and reports the job of the first that dies as
    failed. Only the first: joblib ends the others as soon as it notices, and their jobs are started again."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._descriptors: dict[int, int] = {}  # of processes, by process id
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def wait_for_report(self) -> None:
        self._thread.join(PATIENCE_SECONDS)

    def _watch(self) -> None:
        lost: list[int] = []
        with contextlib.suppress(OSError):  # the sweep ended and took its journal away, or processes cannot be watched
            poll = select.poll()
            while not lost and self._journal.path.is_dir():
                for pid, _ in self._journal.in_flight().values():
                    if pid not in self._descriptors:
                        self._descriptors[pid] = os.pidfd_open(pid)
                        poll.register(self._descriptors[pid], select.POLLIN)
                dead = {descriptor for descriptor, _ in poll.poll(LOOK_SECONDS * 1000)}
                lost = [pid for pid, descriptor in self._descriptors.items() if descriptor in dead][:1]
            self._report(lost)
        for descriptor in self._descriptors.values():
            os.close(descriptor)

    def _report(self, lost: list[int]) -> None:
        for number, (pid, directory) in self._journal.in_flight().items():
            if pid in lost:
                self._journal.report(number, Outcome("failed", directory, KILLED))
