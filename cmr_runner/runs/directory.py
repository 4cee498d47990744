"""One run directory: status, records and checkpoints, each whole at every instant.

The newest checkpoint is the truth: it holds the whole state after its epoch *and* the text of the CSV files up to
it, as one file replaced atomically. The CSV files and run.json are written after it and say the same again; a
resume writes them anew from the checkpoint, so that a kill between two writes cannot make them disagree for long.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cmr_runner.runs.atomic import remove_temporaries, replace_file
from cmr_runner.runs.columns import CHECKPOINT, MODEL, NOTES, PREVIOUS_CHECKPOINT, RUN_FILE, TABLES
from cmr_runner.runs.records import Records

# Results that the same command does not compute again.
FINAL_STATUSES = ("completed", "diverged")


class RunDirectory:
    """The files of one run. Writing methods are for the process that holds the directory's lock."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> dict[str, Any] | None:
        """The content of run.json, or None where there is none that can be read."""
        try:
            content = json.loads((self.path / RUN_FILE).read_text())
        except (OSError, ValueError):
            return None
        return content if isinstance(content, dict) else None

    def status(self) -> str | None:
        content = self.read()
        return str(content.get("status")) if content else None

    def prepare(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        remove_temporaries(self.path)

    def write(self, content: Mapping[str, Any]) -> None:
        text = json.dumps(_finite(content), indent=2, ensure_ascii=False, allow_nan=False)
        replace_file(self.path / RUN_FILE, f"{text}\n".encode())

    def update(self, **changes: Any) -> None:
        self.write({**(self.read() or {}), **changes})

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

    def set_aside(self, checkpoint: Path) -> Path:
        """Rename a checkpoint that cannot be used, and say its new name."""
        aside = checkpoint.with_name(f"{checkpoint.name}.bad")
        os.replace(checkpoint, aside)
        return aside

    def save_model(self, weights: bytes) -> None:
        replace_file(self.path / MODEL, weights)

    def drop_previous_checkpoint(self) -> None:
        (self.path / PREVIOUS_CHECKPOINT).unlink(missing_ok=True)


def _finite(value: Any) -> Any:
    """`value` with null for numbers that JSON cannot write (the CSV files keep nan and inf)."""
    if isinstance(value, Mapping):
        return {str(key): _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
