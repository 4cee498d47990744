"""A tracker in a thread of its own: a slow or broken one neither stops training nor holds it up."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any

from cmr_runner.runs.listener import Beginning, Listener, Row

PATIENCE_SECONDS = 60.0  # at the run's end, for what is still to be written


class Background(Listener):
    """`make` builds the tracker, in the thread: importing its library may take seconds, or fail."""

    def __init__(
        self, name: str, make: Callable[[], Listener], warn: Callable[[str], None], patience: float = PATIENCE_SECONDS
    ) -> None:
        self.name, self._make, self._warn, self._patience = name, make, warn, patience
        self._calls: queue.SimpleQueue[tuple[str, tuple[Any, ...]]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=f"logger-{name}", daemon=True)

    def begin(self, run: Beginning) -> None:
        # The thread reads the epochs so far while the run adds to its own records.
        self._calls.put(("begin", (run.frozen(),)))
        self._thread.start()

    def epoch(self, metrics: Row, layers: Sequence[Row]) -> None:
        self._calls.put(("epoch", (dict(metrics), [dict(row) for row in layers])))

    def end(self, status: str, reason: str) -> None:
        self._calls.put(("end", (status, reason)))
        self._thread.join(self._patience)
        if self._thread.is_alive():
            self._warn(f"logger={self.name} has not written everything after {self._patience:g} s: left behind")

    def _work(self) -> None:
        try:
            tracker = self._make()
            while True:
                method, arguments = self._calls.get()
                getattr(tracker, method)(*arguments)
                if method == "end":
                    return
        except Exception as error:
            self._warn(f"logger={self.name} failed and gets no more of this run: {_text(self.name, error)}")


def _text(name: str, error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError):
        return f"no module {error.name}: pip install 'cmr-runner[{name}]'"
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
