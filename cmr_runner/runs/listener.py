"""Who is told of a run as it goes: the progress display and the trackers are listeners of one interface."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cmr_runner.runs.records import Records

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Beginning:
    """What is known of a run before its next epoch."""

    directory: Path
    experiment: str
    choices: Mapping[str, Any]
    config: Mapping[str, Any]  # what decides the result
    records: Records  # grows with the run; holds the epochs so far
    plan: Sequence[Sequence[Any]] = ()  # (layer, shape, treatment)
    epochs: int = 0
    steps_per_epoch: int = 0
    device: str = ""
    threads: int = 1
    resumed_from: int | None = None  # the last epoch that an earlier start finished

    def frozen(self) -> Beginning:
        """The same with records that stay as they are now."""
        return replace(self, records=Records(self.records.texts))


class Listener:
    """Each method does nothing by itself: override those of interest. `begin` comes first, `end` last."""

    def begin(self, run: Beginning) -> None:
        """Training starts, or goes on."""

    def step(self, view: Any) -> None:
        """A training step is done (`training.loop.StepView`). Called often: be quick."""

    def epoch(self, metrics: Row, layers: Sequence[Row]) -> None:
        """An epoch is done and saved: its row of metrics.csv and its rows of layers.csv."""

    def end(self, status: str, reason: str) -> None:
        """The run has ended with this status of run.json."""


class Listeners(Listener):
    """Several as one, told in their order."""

    def __init__(self, listeners: Sequence[Listener]) -> None:
        self.listeners = listeners

    def begin(self, run: Beginning) -> None:
        for listener in self.listeners:
            listener.begin(run)

    def step(self, view: Any) -> None:
        for listener in self.listeners:
            listener.step(view)

    def epoch(self, metrics: Row, layers: Sequence[Row]) -> None:
        for listener in self.listeners:
            listener.epoch(metrics, layers)

    def end(self, status: str, reason: str) -> None:
        for listener in self.listeners:
            listener.end(status, reason)
