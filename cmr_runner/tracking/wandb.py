"""Weights & Biases: offline by default; `wandb sync` uploads what lies in the directory."""

from __future__ import annotations

import io
import json
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import wandb
from PIL import Image
from wandb.proto.wandb_internal_pb2 import Record
from wandb.sdk.internal.datastore import DataStore

from cmr_runner.runs.listener import Beginning
from cmr_runner.tracking.tracker import Tracker, layer_series, plan_text, settings

STARTING_SECONDS = 600  # for wandb's own process, beside training on a busy machine

Mode = Literal["offline", "online"]


class WandB(Tracker):
    """Files of a run lie in `directory`/<experiment>/<run>; `mode` is wandb's (offline, online)."""

    def __init__(
        self, directory: str, project: str = "cmr_runner", mode: Literal["offline", "online"] = "offline"
    ) -> None:
        self.directory, self.project = Path(directory).absolute(), project
        self.mode: Mode = mode

    def open(self, run: Beginning) -> int:
        place = self.directory / run.experiment / run.directory.name
        place.mkdir(parents=True, exist_ok=True)
        known = sorted(place.glob("wandb/*run-*-*"))
        going_on = bool(known) and run.resumed_from is not None
        number = known[-1].name.rsplit("-", 1)[-1] if going_on else secrets.token_hex(4)
        if known:
            _wait_past(known[-1])
        self._run = wandb.init(
            project=self.project,
            group=run.experiment,
            name=run.directory.name,
            id=number,
            resume=None if self.mode == "offline" else "allow",  # offline, the same id is enough
            dir=str(place),
            mode=self.mode,
            config={**settings(run), "plan": plan_text(run)},
            reinit="create_new",
            settings=wandb.Settings(
                silent=True,
                console="off",
                disable_git=True,
                x_disable_stats=True,
                init_timeout=STARTING_SECONDS,
                x_service_wait=STARTING_SECONDS,
            ),
        )
        if not going_on:
            return -1
        if self.mode == "online":
            return self._run.step - 1  # the server knows
        return max((last_epoch(file) for file in place.glob(f"wandb/*-{number}/run-{number}.wandb")), default=-1)

    def write(self, epoch: int, metrics: Mapping[str, float], layers: Sequence[Mapping[str, Any]]) -> None:
        self._run.log({**metrics, **layer_series(layers)}, step=epoch)

    def picture(self, name: str, png: bytes) -> None:
        self._run.log({f"figures/{name}": wandb.Image(Image.open(io.BytesIO(png)))})

    def close(self, status: str, reason: str) -> None:
        self._run.summary["status"] = status
        self._run.summary["reason"] = reason
        self._run.finish(exit_code=0 if status in ("completed", "stopped") else 1)


def _wait_past(directory: Path) -> None:
    """wandb names a directory after the second it was made in: a run that goes on at once would get the same one."""
    while int(time.time()) <= int(directory.stat().st_mtime):
        time.sleep(0.05)


def last_epoch(file: Path) -> int:
    """The last epoch in a file that wandb wrote offline, -1 for none. A kill may have cut the file."""
    last = -1
    for record in records(file):
        epochs = [item.value_json for item in record.history.item if "epoch" in (item.key, *item.nested_key)]
        last = max([last, *(int(json.loads(epoch)) for epoch in epochs)])
    return last


def records(file: Path) -> Iterator[Record]:
    """What is whole of a file that wandb wrote offline."""
    store = DataStore()
    try:
        store.open_for_scan(str(file))
        while (data := store.scan_data()) is not None:
            yield Record.FromString(data)
    except Exception:  # whatever the reader raises at a cut end
        return
    finally:
        store.close()
