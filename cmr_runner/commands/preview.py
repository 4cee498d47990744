"""`dry=true`: what a command would do, job by job, and about how long it would take. Nothing is run or written."""

from __future__ import annotations

import contextlib
import socket
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from cmr_runner.commands import composition
from cmr_runner.commands.execution import conditions, twin
from cmr_runner.commands.jobs import job_configs, job_directory, side_by_side
from cmr_runner.commands.journal import alive
from cmr_runner.commands.settings import Mistake, Settings, settings_of
from cmr_runner.results.pace import LENGTH, Pace, duration
from cmr_runner.results.reading import DamagedRun, Run, read_run
from cmr_runner.results.text_table import aligned
from cmr_runner.runs.columns import RUN_FILE
from cmr_runner.runs.directory import FINAL_STATUSES, RunDirectory
from cmr_runner.runs.identity import Document, deciding_config, document, recorded_document, same
from cmr_runner.runs.integrity import file_damage, record_damage
from cmr_runner.runs.lock import Holder, holder
from cmr_runner.runs.provenance import shell_command

TO_DO = ("would start", "would resume")


@dataclass(frozen=True)
class Prospect:
    """What would become of one job."""

    word: str
    directory: Path
    reason: str = ""
    epochs: int = 0  # that are left
    seconds: float | None = None  # for them; None where no finished run is of this kind


def preview(config: DictConfig, *, sweep: bool) -> tuple[str, int]:
    """What to print for the command that `config` was composed from, and the exit code."""
    configs = job_configs(config) if sweep else [config]
    pace = Pace(_runs(Path(str(config.output_root))))
    prospects = [_prospect(cfg, job_directory(cfg) if sweep else Path(cfg.hydra.run.dir), pace) for cfg in configs]
    text = _table(prospects) + f"\n{_summary(prospects, side_by_side(config) if sweep else 1)}"
    return text, 2 if any(prospect.word == "would fail" for prospect in prospects) else 0


def _runs(root: Path) -> Iterator[Run]:
    for file in root.glob(f"*/*/{RUN_FILE}"):
        with contextlib.suppress(DamagedRun):
            yield read_run(file.parent)


def _prospect(cfg: DictConfig, directory: Path, pace: Pace) -> Prospect:
    config = composition.plain_config(cfg)
    try:
        settings = settings_of(config)
        _check_groups(cfg)
    except Mistake as error:
        return Prospect("would fail", directory, str(error))
    identity = composition.identity_of(cfg, cfg.hydra)
    decided = document(composition.job_choices(cfg.hydra), deciding_config(config), identity.revision)
    word, reason, done = _foreseen(directory, decided, settings)
    if word not in TO_DO:
        return Prospect(word, directory, reason)
    left = max(0, int(decided.get(LENGTH, 0)) - done)
    each = pace.seconds_per_epoch(decided)
    return Prospect(word, directory, reason, left, None if each is None else each * left)


def _foreseen(directory: Path, decided: Document, settings: Settings) -> tuple[str, str, int]:
    """What cmr-run would do about a run, why, and how many epochs of it are there."""
    run = RunDirectory(directory)
    held_by = holder(directory)
    if held_by and _alive(held_by):
        return "running", f"in process {held_by['pid']} on {held_by['host']}", 0
    if settings.force:
        return "would start", "force=true", 0
    record = run.read()
    saved = any(run.checkpoints())
    if not run.begun():
        other = twin(directory, decided, lambda: _conditions(settings))
        return ("would be copied", f"from {other.path.parent.name}", 0) if other else ("would start", "", 0)
    if record is None or record_damage(record):
        return ("would resume" if saved else "would start"), f"{RUN_FILE} is damaged", 0
    if not same(recorded_document(record), decided):
        return "would fail", "the directory holds the run of another configuration", 0
    epoch = int((record.get("final") or {}).get("epoch") or 0)
    if record["status"] in FINAL_STATUSES:
        damage = file_damage(directory, record)
        if damage:
            return "would resume", "; ".join(damage), epoch if saved else 0
        word = "complete" if record["status"] == "completed" else record["status"]
        return word, (record.get("error") or {}).get("message", ""), epoch
    return ("would resume", f"after epoch {epoch}", epoch) if saved else ("would start", "", 0)


def _alive(held_by: Holder) -> bool:
    """Whether the process that wrote it is there; nothing is known of another host's, so its word counts."""
    return held_by["host"] != socket.gethostname() or alive(int(held_by["pid"]))


def _check_groups(cfg: DictConfig) -> None:
    """Keys and types of every group. Ranges are for the constructors, which need the data."""
    from cmr_runner.commands.construction import check_groups, find_modules

    find_modules(cfg.hydra)
    check_groups(cfg)


def _conditions(settings: Settings) -> dict[str, Any]:
    from cmr_runner.commands.construction import resolve_device

    return conditions(settings, resolve_device(settings.device), shell_command())


def _table(prospects: Sequence[Prospect]) -> str:
    rows = []
    for number, prospect in enumerate(prospects):
        time = "" if prospect.seconds is None else duration(prospect.seconds)
        rows.append([str(number), prospect.word, time, prospect.directory.name, prospect.reason])
    return aligned(["job", "dry run", "about", "run", "reason"], rows, right={"job", "about"})


def _summary(prospects: Sequence[Prospect], at_a_time: int) -> str:
    counts = Counter(prospect.word for prospect in prospects)
    jobs = ", ".join(f"{count} {word}" for word, count in counts.most_common())
    return f"{len(prospects)} job{'s' * (len(prospects) > 1)}: {jobs}{_time(prospects, at_a_time)}; nothing was run"


def _time(prospects: Sequence[Prospect], at_a_time: int) -> str:
    to_do = [prospect for prospect in prospects if prospect.word in TO_DO]
    known = [prospect.seconds for prospect in to_do if prospect.seconds is not None]
    if not to_do:
        return ""
    if not known:
        return "; no finished run of their kind tells how long"
    # Jobs of a kind that has not been run yet are taken for as long as the others.
    total = sum(known) * len(to_do) / len(known)
    unknown = f", {len(to_do) - len(known)} of them guessed" if len(known) < len(to_do) else ""
    together = min(at_a_time, len(to_do))
    beside = f", {duration(total / together)} at {together} jobs at a time" if together > 1 else ""
    return f"; about {duration(total)} by finished runs of their kind{unknown}{beside}"
