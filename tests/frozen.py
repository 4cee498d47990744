"""cmr-run that stands still at one instant of its life: python frozen.py FILE TIME CALLS WORDS...

The instant is just before the TIME-th rename that puts FILE in place, or CALLS calls of Python functions after it,
which is somewhere in the next step or evaluation. The process then stops itself (SIGSTOP) for whoever started it to
look at, to kill or to let go on. A test that waits for the instant from outside meets it only if it is quick enough.
"""

import os
import runpy
import signal
import sys


def freeze_at(file: str, time: int, calls: int, once: str | None = None) -> None:
    """`once` names a file that is made for it: no process freezes where it is already there."""

    def watch_renames(event: str, arguments: tuple) -> None:
        nonlocal time
        if event == "os.rename" and os.path.basename(arguments[1]) == file:
            time -= 1
            if time == 0 and (once is None or claimed(once)):
                freeze_after(calls)

    sys.addaudithook(watch_renames)


def claimed(path: str) -> bool:
    """Write this process's id there, unless another has."""
    try:
        with open(path, "x") as file:
            file.write(str(os.getpid()))
    except FileExistsError:
        return False
    return True


def freeze_after(calls: int) -> None:
    def watch_calls(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls -= event == "call"
        if calls <= 0:
            sys.setprofile(None)
            os.kill(os.getpid(), signal.SIGSTOP)

    if calls == 0:
        os.kill(os.getpid(), signal.SIGSTOP)
    else:
        sys.setprofile(watch_calls)


if __name__ == "__main__":
    file, time, calls, *words = sys.argv[1:]
    freeze_at(file, int(time), int(calls))
    sys.path[0] = ""  # as under `python -m`
    sys.argv[1:] = words
    runpy.run_module("cmr_runner", run_name="__main__", alter_sys=True)
