"""What the trackers have in common: epochs of an earlier start are written where they are missing, then new ones, and
the figures at the run's end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cmr_runner.runs.columns import LAYERS, METRICS
from cmr_runner.runs.directory import FINAL_STATUSES
from cmr_runner.runs.identity import leaves
from cmr_runner.runs.listener import Beginning, Listener, Row
from cmr_runner.tracking.pictures import pictures

LAYER_COLUMNS = ("kappa", "sigma_max", "sigma_min", "stable_rank")


class Tracker(Listener):
    """A subclass says how a run is opened, how one epoch or picture is written, and how the run is closed."""

    _directory = Path()
    _held = -1

    def open(self, run: Beginning) -> int:
        """Find the tracker's run of `run.directory` or make it, whole; the last epoch that it holds, -1 for none."""
        raise NotImplementedError

    def write(self, epoch: int, metrics: Mapping[str, float], layers: Sequence[Mapping[str, Any]]) -> None:
        raise NotImplementedError

    def picture(self, name: str, png: bytes) -> None:
        """A figure of the finished run. Left out by a tracker that does not say how it is written."""

    def close(self, status: str, reason: str) -> None:
        raise NotImplementedError

    def begin(self, run: Beginning) -> None:
        self._directory = run.directory
        self._held = self.open(run)
        for metrics, layers in earlier_epochs(run):
            self.epoch(metrics, layers)

    def epoch(self, metrics: Row, layers: Sequence[Row]) -> None:
        # An epoch that is repeated, because the run's last checkpoint was lost, is there already.
        if metrics["epoch"] > self._held:
            self.write(int(metrics["epoch"]), numbers(metrics), [dict(row) for row in layers])

    def end(self, status: str, reason: str) -> None:
        try:
            if status in FINAL_STATUSES and type(self).picture is not Tracker.picture:
                for name, png in pictures(self._directory).items():
                    self.picture(name, png)
        finally:
            self.close(status, reason)


def earlier_epochs(run: Beginning) -> Iterator[tuple[Row, list[Row]]]:
    layers: dict[str, list[Row]] = defaultdict(list)
    for row in run.records.rows(LAYERS):
        layers[row["epoch"]].append({**_parsed(row), "layer": row["layer"]})
    for row in run.records.rows(METRICS):
        yield _parsed(row), layers[row["epoch"]]


def _parsed(row: Mapping[str, str]) -> dict[str, float]:
    return {name: float(cell) for name, cell in row.items() if cell and name != "layer"}


def numbers(metrics: Row) -> dict[str, float]:
    """The quantities that are defined in this epoch."""
    return {name: float(value) for name, value in metrics.items() if isinstance(value, int | float)}


def layer_series(layers: Sequence[Row]) -> dict[str, float]:
    """`kappa/<layer>` and so on: one series per layer and quantity."""
    return {
        f"{column}/{row['layer']}": float(row[column])
        for row in layers
        for column in LAYER_COLUMNS
        if row.get(column) is not None
    }


def settings(run: Beginning) -> dict[str, Any]:
    """The choices and the values of the configuration by dotted key, without paths of code."""
    chosen = {f"{group}": choice for group, choice in run.choices.items() if choice is not None and group != "logger"}
    values = {key: value for key, value in leaves(run.config) if not key.rsplit(".", 1)[-1].startswith("_")}
    return {**chosen, **values}


def plan_text(run: Beginning) -> str:
    """Which layers are treated how, as a Markdown table."""
    rows = [f"| {layer} | {' × '.join(map(str, shape))} | {method} |" for layer, shape, method, *_ in run.plan]
    return "\n".join(["| layer | shape | treatment |", "|---|---|---|", *rows]) if rows else ""
