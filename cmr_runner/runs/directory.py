"""One run directory: status, records and checkpoints, each whole at every instant.

The newest checkpoint is the truth: it holds the whole state after its epoch *and* the text of the CSV files up to
it, as one file replaced atomically. The CSV files and run.json are written after it and say the same again; a
resume writes them anew from the checkpoint, so that a kill between two writes cannot make them disagree for long.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cmr_runner.runs.atomic import TEMPORARY_MARK, remove_temporaries, replace_file
from cmr_runner.runs.columns import CHECKPOINT, MODEL, NOTES, PREVIOUS_CHECKPOINT, RUN_FILE, TABLES
from cmr_runner.runs.integrity import DIGEST, record_damage, record_digest
from cmr_runner.runs.records import Records

# Results that the same command does not compute again.
FINAL_STATUSES = ("completed", "stopped", "diverged")
FILES = (RUN_FILE, *TABLES, CHECKPOINT, PREVIOUS_CHECKPOINT, MODEL)
LOG = "cmr-run.log"  # Hydra's, if it is told to log
BAD = ".bad"


class RunDirectory:
    """The files of one run. Writing methods are for the process that holds the directory's lock."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> dict[str, Any] | None:
        """The content of run.json, or None where there is none that can be read."""
        file = self.path / RUN_FILE
        if not file.is_file():  # a FIFO would be read for ever
            return None
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return None
        return content if isinstance(content, dict) else None

    def status(self) -> str | None:
        content = self.read()
        return str(content.get("status")) if content else None

    def prepare(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        remove_temporaries(self.path)

    def write(self, content: Mapping[str, Any]) -> None:
        """Replace run.json by `content` and its digest."""
        record = plain(content)
        record[DIGEST] = record_digest(record)
        text = json.dumps(record, indent=2, ensure_ascii=False, allow_nan=False)
        replace_file(self.path / RUN_FILE, f"{text}\n".encode())

    def save_epoch(self, checkpoint: bytes, records: Records) -> None:
        """Commit one finished epoch. The step that counts is the checkpoint's rename."""
        newest = self.path / CHECKPOINT
        if newest.exists():
            os.replace(newest, self.path / PREVIOUS_CHECKPOINT)
        replace_file(newest, checkpoint)
        self.write_records(records)

    def write_records(self, records: Records) -> None:
        for name, text in records.texts.items():
            replace_file(self.path / name, text.encode())

    def copy_results(self, other: RunDirectory) -> None:
        """The CSV files and the weights of another run."""
        for name in (*TABLES, MODEL):
            if (other.path / name).is_file():
                replace_file(self.path / name, (other.path / name).read_bytes())

    def write_notes(self, notes: Mapping[str, str]) -> None:
        """What composed the run's configuration, for .hydra/."""
        if notes:
            (self.path / NOTES).mkdir(exist_ok=True)
        for name, text in notes.items():
            replace_file(self.path / NOTES / name, text.encode())

    def checkpoints(self) -> Iterator[Path]:
        """Those that exist, newest first."""
        for name in (CHECKPOINT, PREVIOUS_CHECKPOINT):
            if (self.path / name).is_file():
                yield self.path / name

    def set_aside(self, file: Path) -> Path:
        """Rename a file that cannot be used, and say its new name."""
        aside = file.with_name(f"{file.name}{BAD}")
        os.replace(file, aside)
        return aside

    def begun(self) -> bool:
        return os.path.lexists(self.path / RUN_FILE) or any(self.checkpoints())

    def strangers(self) -> list[str]:
        """What lies in the directory although no run writes it there, unless run.json shows that this is a run."""
        if not self.path.is_dir() or not record_damage(self.read()):
            return []
        return sorted(entry.name for entry in self.path.iterdir() if not _of_a_run(entry.name))

    def clear(self) -> None:
        """Remove the run's files, run.json first, so that half of a run is not taken for one; then the directory,
        if nothing of somebody else's is in it."""
        (self.path / RUN_FILE).unlink(missing_ok=True)
        for entry in self.path.iterdir() if self.path.is_dir() else ():
            if entry.name == NOTES and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            elif _of_a_run(entry.name):
                entry.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.path.rmdir()

    def save_model(self, weights: bytes) -> None:
        replace_file(self.path / MODEL, weights)

    def drop_previous_checkpoint(self) -> None:
        (self.path / PREVIOUS_CHECKPOINT).unlink(missing_ok=True)


def _of_a_run(name: str) -> bool:
    """Whether cmr-run, or Hydra for it, writes a file of this name into a run directory."""
    temporary = name.startswith(".") and TEMPORARY_MARK in name
    return temporary or name in (NOTES, LOG) or name.removesuffix(BAD) in FILES


def plain(value: Any) -> Any:
    """`value` with null for numbers that JSON cannot write (the CSV files keep nan and inf)."""
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
