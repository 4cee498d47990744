"""What was read of many files is kept for the next time, by size and time of each file.

It only saves time: what has another size or time is read again, and without the kept file everything is.
"""

import hashlib
import json
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import platformdirs

from cmr_runner.runs.atomic import replace_file

LEAST_ENTRIES = 500  # fewer run directories are read in less than half a second
FORMAT = 1


def stamp(file: Path | str) -> tuple[int, int]:
    """Size and time of a file, by which a change of it is noticed; zeros where there is none."""
    try:
        status = os.stat(file)
    except OSError:
        return 0, 0
    return status.st_size, status.st_mtime_ns


class Memory:
    """What is known of directories below some paths, from the files `names` of each."""

    def __init__(self, paths: Iterable[Path], names: Sequence[str]) -> None:
        places = "\0".join(sorted(str(path.resolve()) for path in paths))
        name = f"runs-{hashlib.sha256(places.encode()).hexdigest()[:16]}.json"
        self._names = names
        self._file = Path(platformdirs.user_cache_dir("cmr_runner", appauthor=False)) / name
        self._known = self._read()
        self._stamps: dict[Path, list[list[int]]] = {}

    def recall(self, directory: Path) -> Any:
        """What was kept of the directory, if its files are as they were; else None."""
        self._stamps[directory] = stamps = self._now(directory)
        entry = self._known.get(str(directory))
        return entry[1] if entry is not None and entry[0] == stamps else None

    def keep(self, directories: Collection[Path], content: Callable[[Path], Any]) -> None:
        """Keep the content of each directory, if there are many of them and some are new. A directory that changed
        since it was recalled is left out; a place that cannot be written is no error."""
        if len(directories) < LEAST_ENTRIES:
            return
        entries: dict[str, Any] = {}
        new = False
        for directory in directories:
            stamps, entry = self._stamps[directory], self._known.get(str(directory))
            if entry is None or entry[0] != stamps:
                entry = [stamps, content(directory)]
                new = True
                if self._now(directory) != stamps:
                    continue
            entries[str(directory)] = entry
        if new:
            try:
                self._file.parent.mkdir(parents=True, exist_ok=True)
                replace_file(self._file, json.dumps({"format": FORMAT, "entries": entries}).encode())
            except OSError:
                return

    def _now(self, directory: Path) -> list[list[int]]:
        return [list(stamp(os.path.join(directory, name))) for name in self._names]

    def _read(self) -> dict[str, Any]:
        try:
            content = json.loads(self._file.read_text(encoding="utf-8"))
            return content["entries"] if content["format"] == FORMAT else {}
        except (OSError, ValueError, TypeError, KeyError):
            return {}
