"""TensorBoard: one directory of event files per run, written by TensorBoard's own writer."""

from __future__ import annotations

import io
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.histogram.summary_v2 import histogram_pb
from tensorboard.plugins.hparams.summary_v2 import hparams_pb
from tensorboard.plugins.scalar.summary_v2 import scalar_pb
from tensorboard.plugins.text.summary_v2 import text_pb
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from cmr_runner.runs.listener import Beginning
from cmr_runner.tracking.tracker import LAYER_COLUMNS, Tracker, layer_series, plan_text, settings


class TensorBoard(Tracker):
    """Events of a run lie in `directory`/<experiment>/<run>."""

    def __init__(self, directory: str) -> None:
        self.directory = Path(directory)

    def open(self, run: Beginning) -> int:
        place = self.directory / run.experiment / run.directory.name
        # A run that goes on is written again from its first epoch: a killed start may have lost its last ones.
        for old in place.glob("events.out.tfevents.*"):
            old.unlink()
        self._writer = EventFileWriter(str(place))
        values = {key: _hyperparameter(value) for key, value in settings(run).items()}
        self._add(0, hparams_pb(values, trial_id=run.directory.name))
        lines = "\n".join(["| setting | value |", "|---|---|", *(f"| {key} | {values[key]} |" for key in values)])
        self._add(0, text_pb("settings", lines))
        if run.plan:
            self._add(0, text_pb("plan", plan_text(run)))
        return -1

    def write(self, epoch: int, metrics: Mapping[str, float], layers: Sequence[Mapping[str, Any]]) -> None:
        for name, value in {**metrics, **layer_series(layers)}.items():
            self._add(epoch, scalar_pb(name, value))
        for column in LAYER_COLUMNS:
            over_layers = np.array([row[column] for row in layers if row.get(column) is not None], dtype=float)
            if np.isfinite(over_layers).any():
                self._add(epoch, histogram_pb(f"layers/{column}", over_layers[np.isfinite(over_layers)]))
        self._writer.flush()

    def picture(self, name: str, png: bytes) -> None:
        width, height = Image.open(io.BytesIO(png)).size
        image = Summary.Image(height=height, width=width, colorspace=4, encoded_image_string=png)
        self._add(0, Summary(value=[Summary.Value(tag=f"figures/{name}", image=image)]))

    def close(self, status: str, reason: str) -> None:
        self._add(0, text_pb("status", f"{status}: {reason}" if reason else status))
        self._writer.close()

    def _add(self, step: int, summary: Summary) -> None:
        self._writer.add_event(Event(wall_time=time.time(), step=step, summary=summary))


def _hyperparameter(value: Any) -> str | float | int | bool:
    return value if isinstance(value, str | float | int | bool) else str(value)
