"""Standard output and errors, whatever becomes of them: closed from the start, or left by whoever read them."""

import contextlib
import os
import signal
import sys
from typing import Any, TextIO

from cmr_runner.commands.signals import STOP

# Set while a live line stands at the end of the terminal: what is said takes its place.
LIVE_VARIABLE = "CMR_RUNNER_LIVE"
ERASE = "\r\x1b[K"


def mend() -> None:
    """Open the standard streams that this process was started without, or its next file would become one of them."""
    for descriptor, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            discard(descriptor)
            setattr(sys, name, open(descriptor, mode, closefd=False))  # noqa: SIM115 (for the life of the process)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a name from a file may hold what cannot be written


def say(text: str, stream: TextIO | None = None) -> None:
    """Print a line. If whoever read it has gone, stop as if told to; a terminal that has gone sends a signal."""
    stream = stream or sys.stdout
    try:
        place = ERASE if os.environ.get(LIVE_VARIABLE) and stream.isatty() else ""
        print(f"{place}{text}\n", end="", file=stream, flush=True)  # in one piece: jobs share the terminal
    except BrokenPipeError:
        discard(stream.fileno())  # Python's own flush at the end must not complain of it either
        STOP.request(signal.SIGPIPE)
    except OSError:
        pass


class Forgiving:
    """A stream that a live display writes to, and that its terminal's end does not break."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            return self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def discard(descriptor: int) -> None:
    """Let `descriptor` lead nowhere."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    if nowhere != descriptor:
        os.dup2(nowhere, descriptor)
        os.close(nowhere)
