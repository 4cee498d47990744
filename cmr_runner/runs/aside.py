"""`force=true`: the old directory stands aside until the new run is complete, and no kill loses both.

At every instant the old result is at the run's own path or at `<path>.old`:

1. moved aside, the new run not begun (no run.json): the next start moves it back, then follows its usual rules;
2. the new run is under way: the next start goes on with it, the old one stays aside;
3. the new run is complete: the old one is removed, by this process or by the next that comes by.
"""

import os
import shutil
from pathlib import Path

from cmr_runner.runs.columns import RUN_FILE
from cmr_runner.runs.directory import FINAL_STATUSES, RunDirectory


def aside_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.old")


def settle(path: Path) -> None:
    """Leave the states that a kill can leave behind: 1 by going back, 3 by finishing. Call with the run's lock held."""
    old = aside_path(path)
    if not old.exists():
        return
    if not _begun(path):
        shutil.rmtree(path, ignore_errors=True)
        os.replace(old, path)
    elif RunDirectory(path).status() in FINAL_STATUSES:
        discard(path)


def move_aside(path: Path) -> None:
    """Clear `path` for a new run. Of several unfinished tries only the result that stood before them is kept."""
    if aside_path(path).exists() or not _begun(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        os.replace(path, aside_path(path))


def discard(path: Path) -> None:
    """Remove what stood aside, run.json first, so that a half-removed directory is not taken for a run."""
    old = aside_path(path)
    (old / RUN_FILE).unlink(missing_ok=True)
    shutil.rmtree(old, ignore_errors=True)


def _begun(path: Path) -> bool:
    return (path / RUN_FILE).exists() or any(RunDirectory(path).checkpoints())
