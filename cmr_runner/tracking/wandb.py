"""Weights & Biases: offline by default; `wandb sync` uploads what lies in the directory."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import wandb

from cmr_runner.runs.listener import Beginning
from cmr_runner.tracking.tracker import Tracker, layer_series, plan_text, settings

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
            settings=wandb.Settings(silent=True, console="off", disable_git=True, x_disable_stats=True),
        )
        return run.resumed_from if going_on and run.resumed_from is not None else -1

    def write(self, epoch: int, metrics: Mapping[str, float], layers: Sequence[Mapping[str, Any]]) -> None:
        self._run.log({**metrics, **layer_series(layers)}, step=epoch)

    def close(self, status: str, reason: str) -> None:
        self._run.summary["status"] = status
        self._run.summary["reason"] = reason
        self._run.finish(exit_code=0 if status in ("completed", "stopped") else 1)
