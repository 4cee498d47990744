"""Runs that are there already, written into a tracker as if it had listened to them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cmr_runner.results.reading import Run
from cmr_runner.runs.columns import LAYERS, TABLES
from cmr_runner.runs.listener import Beginning
from cmr_runner.runs.records import Records
from cmr_runner.tracking.tracker import Tracker


def exported(runs: Sequence[Run], name: str, place: Path) -> int:
    """Write `runs` into the tracker `name` at `place`; how many there were."""
    for run in runs:
        tracker = _tracker(name, place)
        tracker.begin(_beginning(run))
        tracker.end(run.status, run.error)
    return len(runs)


def _beginning(run: Run) -> Beginning:
    paths = [run.path / name for name in TABLES]
    records = Records({path.name: path.read_text(encoding="utf-8") for path in paths if path.is_file()})
    final = records.last_metrics()
    return Beginning(
        directory=run.path,
        experiment=run.experiment,
        choices=run.record.get("choices") or {},
        config=run.record.get("config") or {},
        records=records,
        plan=_plan(run, records),
        resumed_from=int(final["epoch"] or 0) if final else None,
    )


def _plan(run: Run, records: Records) -> list[tuple[str, tuple[str, str], str]]:
    """The layers that the run measured, and its regulariser."""
    rows = [row for row in records.rows(LAYERS) if row["epoch"] == "0"]
    return [(row["layer"], (row["rows"], row["cols"]), run.method) for row in rows]


def _tracker(name: str, place: Path) -> Tracker:
    if name == "tensorboard":
        from cmr_runner.tracking.tensorboard import TensorBoard

        return TensorBoard(str(place))
    if name == "mlflow":
        from cmr_runner.tracking.mlflow import MLflow

        return MLflow(str(place))
    from cmr_runner.tracking.wandb import WandB

    return WandB(str(place))
