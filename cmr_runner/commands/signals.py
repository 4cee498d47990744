"""Signals that ask a run to stop, turned into a flag that training looks at between steps."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator

SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1") if hasattr(signal, name))
# How a log-in session ends.
LEAVING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))
STOPPING = "stopping at the next step"


class StopRequests:
    """Whether this process was asked to stop, and by which signal."""

    def __init__(self) -> None:
        self.signal = 0
        self._graceful = self._held = 0
        self._listening = False
        self.on_request: Callable[[], None] | None = None
        self._leaving: tuple[int, ...] = ()
        self._word = STOPPING

    @property
    def left(self) -> bool:
        """Whether the signal asks this process to end and not its jobs."""
        return self.signal in self._leaving

    def requested(self) -> bool:
        return self.signal != 0

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Handle the signals; signal handlers belong to the main thread, elsewhere this does nothing."""
        if self._listening or threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._handle) for number in _heeded()}
        self._listening = True
        try:
            yield
        finally:
            self._listening = False
            for number, handler in before.items():
                signal.signal(number, handler if handler is not None else signal.SIG_DFL)

    @contextlib.contextmanager
    def graceful(self) -> Iterator[None]:
        """Inside, a signal only sets the flag; outside there is nothing to finish and it stops the process at once."""
        self._graceful += 1
        try:
            yield
        finally:
            self._graceful -= 1

    def reset(self) -> None:
        """As in a fresh process."""
        self.signal = self._graceful = self._held = 0
        self.on_request = None
        self._leaving, self._word = (), STOPPING

    def leave_at(self, signals: tuple[int, ...], word: str) -> None:
        """At these signals end at once and ask nobody to stop; `word` is what Ctrl-C says."""
        self._leaving, self._word = signals, word

    def hold(self) -> None:
        """Be graceful from here on: a sweep always has something to finish, its table."""
        self._graceful += 1
        self._held += 1

    def request(self, number: int) -> None:
        """Ask for a stop as signal `number` does."""
        self.signal = number
        if self.on_request is not None:
            self.on_request()

    def _handle(self, number: int, frame: object) -> None:
        # A second Ctrl-C is an impatient person, who is served at once unless a run is being written.
        impatient = number == signal.SIGINT and self.signal != 0 and self._graceful == self._held
        if impatient or not self._graceful or number in self._leaving:
            self.signal = number
            raise KeyboardInterrupt
        first = self.signal == 0
        self.request(number)
        if number == signal.SIGINT and first:
            # os.write, since print could be interrupted in the middle of a print.
            with contextlib.suppress(OSError, ValueError):
                os.write(sys.stderr.fileno(), f"\n{self._word}\n".encode())


def _heeded() -> list[int]:
    """The signals that whoever started this process wants heeded; nohup, for one, has SIGHUP ignored."""
    return [number for number in SIGNALS if signal.getsignal(number) != signal.SIG_IGN]


def leave_on_signals() -> None:
    """Until `listening`, a signal ends the process: nothing has begun."""
    for number in _heeded():
        signal.signal(number, _leave)


def _leave(number: int, frame: object) -> None:
    with contextlib.suppress(OSError):
        os.write(2, b"cmr-run: interrupted\n")
    os._exit(128 + number)


STOP = StopRequests()
