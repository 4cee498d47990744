"""The figures of one run, as a tracker takes them: drawn as cmr-plot draws them, at the run's end."""

from __future__ import annotations

import tempfile
import threading
from functools import lru_cache
from pathlib import Path

from cmr_runner.figures.catalogue import FIGURES
from cmr_runner.figures.drawing import Job, Target, draw
from cmr_runner.results.grouping import comparable_sets
from cmr_runner.results.memory import stamp
from cmr_runner.results.reading import read_run
from cmr_runner.runs.columns import RUN_FILE

KINDS = ("curves", "layers", "spectra")
DPI = 120
_drawing = threading.Lock()  # matplotlib's settings are the whole process's; several trackers end at once


def pictures(directory: Path) -> dict[str, bytes]:
    """Name → PNG of the run that is kept in `directory`; none where there is no run."""
    if not (directory / RUN_FILE).is_file():
        return {}
    with _drawing:
        return _pictures(directory, stamp(directory / RUN_FILE))


@lru_cache(maxsize=1)
def _pictures(directory: Path, written: tuple[int, int]) -> dict[str, bytes]:
    (setting,) = comparable_sets([read_run(directory)])
    found: dict[str, bytes] = {}
    with tempfile.TemporaryDirectory(prefix="cmr-pictures-") as folder:
        for figure in FIGURES:
            if figure.name in KINDS:
                drawn = draw(Target(Path(folder), ("png",), DPI), Job(figure, setting))
                found |= {Path(file).stem: (Path(folder) / file).read_bytes() for file in drawn.files}
    return found
