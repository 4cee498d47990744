"""MLflow: a local database by default, or any tracking server by its URI."""

from __future__ import annotations

import logging
import re
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from filelock import FileLock
from mlflow import MlflowClient
from mlflow.entities import Metric, Param

from cmr_runner.runs.listener import Beginning
from cmr_runner.tracking.tracker import Tracker, layer_series, plan_text, settings

RUN_TAG = "cmr_runner.run"
LONGEST_VALUE = 500  # characters of a parameter
ENDINGS = {"completed": "FINISHED", "stopped": "FINISHED", "interrupted": "KILLED"}


class MLflow(Tracker):
    """`directory` keeps the database and the artifacts; `uri` names a server or another store instead."""

    def __init__(self, directory: str, uri: str | None = None) -> None:
        self.directory, self.uri = Path(directory).absolute(), uri
        for chatty in ("mlflow", "alembic"):
            logging.getLogger(chatty).setLevel(logging.WARNING)

    def open(self, run: Beginning) -> int:
        self.directory.mkdir(parents=True, exist_ok=True)
        with FileLock(self.directory / ".lock"):  # jobs side by side would each make the database and the experiment
            self._client = MlflowClient(tracking_uri=self.uri or f"sqlite:///{self.directory / 'mlflow.db'}")
            experiment = self._experiment(run.experiment)
        key = f"{run.experiment}/{run.directory.name}"
        known = self._client.search_runs([experiment], f"tags.`{RUN_TAG}` = '{key}'")
        held = -1
        if known and run.resumed_from is not None:
            self._id = known[0].info.run_id
            self._client.update_run(self._id, status="RUNNING")
            held = max((int(one.step) for one in self._client.get_metric_history(self._id, "epoch")), default=-1)
        else:
            for old in known:
                self._client.delete_run(old.info.run_id)
            created = self._client.create_run(experiment, run_name=run.directory.name, tags={RUN_TAG: key})
            self._id = created.info.run_id
        # Said again to a run that is continued, since its first start may not have come so far.
        parameters = [Param(_allowed(name), str(value)[:LONGEST_VALUE]) for name, value in settings(run).items()]
        for start in range(0, len(parameters), 100):
            self._client.log_batch(self._id, params=parameters[start : start + 100])
        if run.plan:
            self._client.log_text(self._id, plan_text(run), "plan.md")
        return held

    def _experiment(self, name: str) -> str:
        found = self._client.get_experiment_by_name(name)
        if found is not None:
            return str(found.experiment_id)
        place = None if self.uri else (self.directory / "artifacts" / name).as_uri()
        return str(self._client.create_experiment(name, artifact_location=place))

    def write(self, epoch: int, metrics: Mapping[str, float], layers: Sequence[Mapping[str, Any]]) -> None:
        now = int(time.time() * 1000)
        named = {**metrics, **layer_series(layers)}
        named["epoch"] = named.pop("epoch")  # last: an epoch that has it is there as a whole
        values = [Metric(_allowed(name), value, now, epoch) for name, value in named.items()]
        for start in range(0, len(values), 1000):  # the most that one batch may hold
            self._client.log_batch(self._id, metrics=values[start : start + 1000])

    def picture(self, name: str, png: bytes) -> None:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / f"{name}.png"
            file.write_bytes(png)
            self._client.log_artifact(self._id, str(file), "figures")

    def close(self, status: str, reason: str) -> None:
        self._client.set_tag(self._id, "cmr_runner.status", status)
        if reason:
            self._client.set_tag(self._id, "cmr_runner.reason", reason)
        if status != "running":  # an export may come upon a run that goes on
            self._client.set_terminated(self._id, ENDINGS.get(status, "FAILED"))


def _allowed(name: str) -> str:
    """`name` in the characters that MLflow takes: `layers@regularizer.layers` is a name of Hydra's."""
    return re.sub(r"[^\w\-. :/]", "_", name)
