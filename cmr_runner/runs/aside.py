"""`force=true`: the old directory stands aside until the new run is complete, and no kill loses both.

At every instant the old result is at the run's own path or at `<path>.old`:

1. moved aside, the new run not begun (no run.json): the next start moves it back, then follows its usual rules;
2. the new run is under way: the next start goes on with it, the old one stays aside;
3. the new run is complete: the old one is removed, by this process or by the next that comes by.
"""

import contextlib
import os
from pathlib import Path

from cmr_runner.runs.directory import FINAL_STATUSES, RunDirectory


class Foreign(Exception):
    """A directory in the way that is no run; the message names it."""


def aside_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.old")


def refuse_foreign(path: Path, *, moving: bool) -> None:
    """Raise Foreign if `path` holds anything but a run; `moving`: or the place where that is to stand aside."""
    places = [path, aside_path(path)] if moving or not RunDirectory(path).begun() else [path]
    for place in places:
        strangers = RunDirectory(place).strangers()
        if strangers:
            some = ", ".join(strangers[:3]) + (", …" if len(strangers) > 3 else "")
            raise Foreign(f"{place} holds no run, but {some}: it is left as it is; choose another directory")


def settle(path: Path) -> None:
    """Leave the states that a kill can leave behind: 1 by going back, 3 by finishing. Call with the run's lock held,
    after `refuse_foreign`."""
    old = aside_path(path)
    if not old.exists() or RunDirectory(old).strangers():
        return
    if not RunDirectory(path).begun():
        RunDirectory(path).clear()
        os.replace(old, path)
    elif RunDirectory(path).status() in FINAL_STATUSES:
        discard(path)


def move_aside(path: Path) -> None:
    """Clear `path` for a new run. Of several unfinished tries only the result that stood before them is kept."""
    if aside_path(path).exists() or not RunDirectory(path).begun():
        RunDirectory(path).clear()
    else:
        os.replace(path, aside_path(path))


def discard(path: Path) -> None:
    """Remove the run that stood aside. What somebody else had put beside it goes back to where it was."""
    old = aside_path(path)
    RunDirectory(old).clear()
    for entry in old.iterdir() if old.is_dir() else ():
        if not os.path.lexists(path / entry.name):
            os.replace(entry, path / entry.name)
    with contextlib.suppress(OSError):
        old.rmdir()
