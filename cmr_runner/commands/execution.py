"""One job from its lock to its outcome: skip, resume or start, train, and leave a directory that says what happened."""

from __future__ import annotations

import errno
import os
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cmr_runner.commands.progress import Progress
from cmr_runner.commands.settings import Mistake, Settings
from cmr_runner.commands.signals import STOP
from cmr_runner.runs import aside
from cmr_runner.runs.columns import MODEL, RUN_FILE, TABLES
from cmr_runner.runs.directory import FINAL_STATUSES, RunDirectory, plain
from cmr_runner.runs.identity import Document, Identity, document, recorded_document, same
from cmr_runner.runs.integrity import FILES, file_damage, fingerprints, record_damage
from cmr_runner.runs.listener import Beginning, Listener, Listeners
from cmr_runner.runs.lock import Held, run_lock
from cmr_runner.runs.outcome import Outcome
from cmr_runner.runs.provenance import differences, now, provenance, same_conditions
from cmr_runner.runs.records import Records

if TYPE_CHECKING:
    from cmr_runner.training.loop import Stopped, Trainer

# The place is wrong (the user's to change), as against a place that stopped being good during the run.
UNWRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.ENAMETOOLONG)
LONGEST = 400  # characters of a reason
COMPLETED_BEFORE = "completed before; force=true runs it again"
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True)
class Job:
    """What is to be run and where; the only thing left out is how its parts are made."""

    settings: Settings
    identity: Identity
    choices: dict[str, str | None]
    config: dict[str, Any]  # what decides the result
    directory: Path
    command: str
    notes: dict[str, str] = field(default_factory=dict)  # file name → text, for .hydra/
    trackers: Sequence[Listener] = ()

    @property
    def document(self) -> Document:
        return document(self.choices, self.config, self.identity.revision)


def execute(
    job: Job,
    build: Callable[[str], Trainer],
    progress: Progress,
    should_stop: Callable[[], bool] = STOP.requested,
    on_start: Callable[[dict[str, Any] | None], None] = lambda state: None,
) -> Outcome:
    """Run `job` unless its directory already holds its result. `build(device)` makes a fresh trainer; `on_start` is
    told the state that training starts from (None: a fresh one), and is not called where there is nothing to do."""
    began = time.perf_counter()
    try:
        with run_lock(job.directory, job.command):
            outcome = _Execution(job, build, progress, should_stop, on_start).outcome()
    except Held as error:
        outcome = Outcome("held", str(job.directory), str(error))
    except Mistake as error:
        outcome = Outcome("invalid", str(job.directory), str(error))
    except aside.Foreign as error:
        outcome = Outcome("invalid", str(job.directory), str(error))
    except OSError as error:
        outcome = _completed_before(job) or unwritable(error, job.directory)
    return Outcome(**{**outcome.as_dict(), "seconds": time.perf_counter() - began})


def _completed_before(job: Job) -> Outcome | None:
    """A result that is there needs no place that can be written."""
    run = RunDirectory(job.directory)
    record = run.read()
    if record_damage(record) or record is None or record["status"] != "completed" or job.settings.force:
        return None
    if not same(recorded_document(record), job.document) or file_damage(run.path, record):
        return None
    return Outcome("skipped", str(run.path), COMPLETED_BEFORE)


def twin(path: Path, decided: Document, facts: Callable[[], dict[str, Any]]) -> RunDirectory | None:
    """The run of `path`, completed in another experiment under the conditions `facts`, so equal bit for bit."""
    for other in sorted(path.parent.parent.glob(f"*/{path.name}")):
        record = RunDirectory(other).read()
        if (
            record
            and not record_damage(record)
            and record["status"] == "completed"
            and same(recorded_document(record), decided)
            and same_conditions(record["provenance"], facts())
            and not file_damage(other, record)
        ):
            return RunDirectory(other)
    return None


def conditions(settings: Settings, device: str, command: str) -> dict[str, Any]:
    """What a run that is started now records of its code and its machine."""
    import torch

    return provenance(
        seed=settings.seed,
        threads=settings.threads,
        device=device,
        instructions=torch.backends.cpu.get_cpu_capability(),
        command=command,
    )


def unwritable(error: OSError, directory: Path) -> Outcome:
    """The outcome of a run whose directory cannot be written."""
    if error.errno in UNWRITABLE:
        return Outcome(
            "invalid", str(directory), f"output_root: cannot write {error.filename or directory}: {error.strerror}"
        )
    return Outcome("failed", str(directory), failure_text(error, directory))


def failure_text(error: BaseException, directory: Path) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, OSError) and error.errno in FULL:
        place = error.filename or directory
        return f"no room to write {place} ({error.strerror}); what is there is whole: free some and run again"
    if isinstance(error, FileNotFoundError) and not directory.exists():
        return f"the run directory {directory} disappeared during the run"
    text = text.partition("Exception raised from")[0]  # the rest is C++'s stack
    text = text if type(error).__module__.startswith("cmr_runner.") else f"{type(error).__name__}: {text}"
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _named(error: BaseException, message: str | None = None) -> dict[str, str]:
    """How a run ended, as run.json says it."""
    return {"kind": type(error).__name__, "message": str(error) if message is None else message}


class _Execution:
    """The steps of `execute` that happen under the lock."""

    def __init__(
        self,
        job: Job,
        build: Callable[[str], Trainer],
        progress: Progress,
        should_stop: Callable[[], bool],
        on_start: Callable[[dict[str, Any] | None], None],
    ) -> None:
        self.job, self.build, self.progress = job, build, progress
        self.listeners = Listeners([progress, *job.trackers])
        self.should_stop, self.on_start = should_stop, on_start
        self.state: dict[str, Any] | None = None  # of the trainer, where it was restored
        self.run = RunDirectory(job.directory)
        self.record: dict[str, Any] = {}  # what run.json says, once this process writes it
        self._every_spectrum = job.settings.spectra == "all"
        self.records = Records(every_spectrum=self._every_spectrum)
        self.resumed_from: int | None = None

    def outcome(self) -> Outcome:
        force = self.job.settings.force
        aside.refuse_foreign(self.run.path, moving=force)
        aside.settle(self.run.path)
        record = self._earlier_record()
        if record and not same(recorded_document(record), self.job.document):
            return self._ended("failed", f"{self.run.path} holds the run of another configuration: move it away")
        if force:
            record = None
        if record and record["status"] in FINAL_STATUSES:
            damage = file_damage(self.run.path, record)
            if not damage:
                return self._as_before(record)
            self.progress.warn(f"{self.run.path}: {'; '.join(damage)}; what is damaged is made again")
        from cmr_runner.commands.construction import resolve_device

        device = resolve_device(self.job.settings.device)
        if record is None and not force:
            same_run = twin(self.run.path, self.job.document, lambda: self._conditions(device))
            if same_run is not None:
                with STOP.graceful():
                    return self._copied(same_run)
        try:
            trainer = self.build(device)
        except Mistake:
            raise
        except Exception as error:
            return self._failed(record, device, error)
        with STOP.graceful():
            if force:
                aside.move_aside(self.run.path)
            self.run.prepare()
            trainer = self._restore(trainer, device)
            self._begin(record, device)
            self.on_start(self.state)
            return self._train(trainer)

    def _earlier_record(self) -> dict[str, Any] | None:
        """What run.json says. In place of one that is damaged or gone, what the newest good checkpoint says."""
        if not self.run.begun():
            return None
        record, file = self.run.read(), self.run.path / RUN_FILE
        damage = record_damage(record)
        if not damage:
            return record
        copy = self._record_in_checkpoint()
        if os.path.lexists(file):
            kept = self.run.set_aside(file)
            follows = "rebuilt from the checkpoint" if copy else "no checkpoint has a copy, so the run starts over"
            self.progress.warn(f"{file} is damaged ({damage}); it is now {kept.name}; {follows}")
        return copy

    def _record_in_checkpoint(self) -> dict[str, Any] | None:
        from cmr_runner.training.checkpoint import BadCheckpoint, unpack

        for path in self.run.checkpoints():
            try:
                record = unpack(path.read_bytes(), identity=self.job.identity.hash).get("run")
            except (BadCheckpoint, OSError):
                continue  # to be said when the checkpoint is loaded
            if isinstance(record, dict) and not record_damage(record):
                return record
        return None

    def _as_before(self, record: dict[str, Any]) -> Outcome:
        if record["status"] == "completed":
            return self._ended("skipped", COMPLETED_BEFORE)
        message = (record.get("error") or {}).get("message", "")
        if record["status"] == "stopped":
            return self._ended("stopped", f"{message}; force=true runs it again")
        return self._ended("diverged", f"diverged before ({message}); force=true runs it again")

    def _copied(self, twin: RunDirectory) -> Outcome:
        """run.json comes last: without it the next start begins anew."""
        record = twin.read() or {}
        source = f"{twin.path.parent.name}/{twin.path.name}"
        self.run.prepare()
        self.run.copy_results(twin)
        self.run.write_notes(self.job.notes)
        own = {"identity": self.job.identity.as_dict(), "choices": self.job.choices}
        self.run.write({**record, **own, "provenance": {**record["provenance"], "copied_from": source}})
        return self._ended("skipped", f"copied from {source}, completed under the same conditions")

    def _restore(self, trainer: Trainer, device: str) -> Trainer:
        """Load the newest good checkpoint, if there is one; set those aside that are not."""
        import torch

        from cmr_runner.training.checkpoint import unpack
        from cmr_runner.training.loop import OtherProcesses

        for path in self.run.checkpoints():
            try:
                state = unpack(path.read_bytes(), identity=self.job.identity.hash)
                trainer.load_state_dict(state["trainer"])
                self.state = state["trainer"]
                self.records = Records(state["records"], every_spectrum=self._every_spectrum)
                self.resumed_from = int(state["trainer"]["epoch"])
                break
            except OtherProcesses as error:
                raise Mistake(f"{path}: {error}, or start over with force=true") from None
            except (OSError, MemoryError, torch.OutOfMemoryError):  # the file may be good: it is not the one to blame
                raise
            except Exception as error:  # whatever a damaged or foreign state raises
                kept = self.run.set_aside(path)
                reason = " ".join(str(error).split())
                self.progress.warn(f"{path} cannot be used ({reason}); it is now {kept.name}")
                trainer = self.build(device)  # loading may have changed part of the other one
        return trainer

    def _begin(self, record: dict[str, Any] | None, device: str) -> None:
        """Write the CSV files as the checkpoint has them, and run.json with status running."""
        facts = self._conditions(device)
        earlier = (record or {}).get("provenance")
        if self.resumed_from is not None and earlier:
            changed = differences(earlier, facts)
            if changed:
                self.progress.warn(f"resumed under other conditions, bits may differ: {'; '.join(changed)}")
            resume = {"at": facts["start"], "epoch": self.resumed_from, "threads": facts["threads"], "changed": changed}
            facts = {**earlier, "resumes": [*earlier.get("resumes", []), resume], "end": None}
        self._write("running", facts)
        self.run.write_records(self.records)
        self.run.write_notes(self.job.notes)

    def _conditions(self, device: str) -> dict[str, Any]:
        return conditions(self.job.settings, device, self.job.command)

    def _write(self, status: str, facts: dict[str, Any], error: dict[str, Any] | None = None) -> None:
        job = self.job
        self.record = {
            "status": status,
            "identity": job.identity.as_dict(),
            "choices": job.choices,
            "config": job.config,
            "provenance": facts,
            "final": self._final(),
            "error": error,
        }
        self.run.write(self.record)

    def _update(self, **changes: Any) -> None:
        self.record |= changes
        self.run.write(self.record)

    def _final(self) -> dict[str, Any] | None:
        final = self.records.last_metrics()
        return final and {**final, "epochs": final["epoch"]}

    def _train(self, trainer: Trainer) -> Outcome:
        """Train, and tell the listeners of it from its beginning to its end, whatever that is."""
        self.listeners.begin(self._beginning(trainer))
        try:
            return self._trained(trainer)
        finally:
            error = self.record.get("error") or {}
            self.listeners.end(self.record["status"], error.get("message", ""))

    def _beginning(self, trainer: Trainer) -> Beginning:
        return Beginning(
            directory=self.job.directory,
            experiment=self.job.identity.experiment,
            choices=self.job.choices,
            config=self.job.config,
            records=self.records,
            plan=trainer.plan,
            epochs=trainer.epochs,
            steps_per_epoch=trainer.steps_per_epoch,
            device=str(trainer.device),
            threads=self.job.settings.threads,
            resumed_from=self.resumed_from,
        )

    def _trained(self, trainer: Trainer) -> Outcome:
        from cmr_runner.training.loop import Diverged, Interrupted

        try:
            stopped = self._run_epochs(trainer)
            self._complete(trainer, stopped)
        except Diverged as error:
            self._note("diverged", error)
            aside.discard(self.run.path)
            return self._ended("diverged", str(error))
        except Interrupted as error:
            self._note("interrupted", error)
            return self._ended("interrupted", str(error), signal=STOP.signal)
        except SystemExit:  # submitit's way to end a job at its time limit, once it is in the queue again
            self._note("interrupted", Interrupted("stopped by the cluster, which has queued it again"))
            raise
        except Exception as error:
            self._note("failed", error)
            return self._ended("failed", failure_text(error, self.run.path))
        if stopped is not None:
            return self._ended("stopped", str(stopped))
        if self.resumed_from is None:
            return self._ended("completed")
        return self._ended("resumed", f"from epoch {self.resumed_from}")

    def _run_epochs(self, trainer: Trainer) -> Stopped | None:
        """All of them, or up to the one that `trainer.stop_when` ends the run with."""
        from cmr_runner.training.checkpoint import pack
        from cmr_runner.training.loop import Stopped

        try:
            for epoch in trainer.run(self.should_stop, self.listeners.step):
                self.records.add_epoch(epoch.metrics, epoch.layers, epoch.spectra)
                self.record["final"] = self._final()
                state = {"trainer": trainer.state_dict(), "records": self.records.texts, "run": plain(self.record)}
                self.run.save_epoch(pack(state, identity=self.job.identity.hash), self.records)
                self._update()
                self.listeners.epoch(epoch.metrics, epoch.layers)
        except Stopped as reason:
            return reason
        return None

    def _complete(self, trainer: Trainer, stopped: Stopped | None) -> None:
        from cmr_runner.training.checkpoint import saved

        self.run.save_model(saved(trainer.model.state_dict()))
        status, error = ("stopped", _named(stopped)) if stopped else ("completed", None)
        self._update(status=status, provenance=self._ended_now(), error=error, **{FILES: self._files()})
        self.run.drop_previous_checkpoint()
        aside.discard(self.run.path)

    def _files(self) -> dict[str, Any]:
        """What the finished run keeps; the checkpoint, which it can do without, carries its own digest."""
        return fingerprints(self.run.path, (*TABLES, MODEL))

    def _ended_now(self) -> dict[str, Any]:
        return {**self.record["provenance"], "end": now()}

    def _failed(self, record: dict[str, Any] | None, device: str, error: Exception) -> Outcome:
        """A run that could not be built for another reason than the user's configuration."""
        if record is None and not self.run.begun():
            self.run.prepare()
            self._write("failed", self._conditions(device))
        elif record is not None and record["status"] not in FINAL_STATUSES:
            self.record = record
        if self.record:
            self._note("failed", error)
        return self._ended("failed", failure_text(error, self.run.path))

    def _note(self, status: str, error: BaseException) -> None:
        """Write down how the run ended, if that can still be written."""
        note = _named(error, failure_text(error, self.run.path))
        if status == "failed":
            note["traceback"] = "".join(traceback.format_exception(error))
            self.progress.trace(error)
        files = {FILES: self._files()} if status in FINAL_STATUSES else {}
        try:
            self._update(status=status, error=note, provenance=self._ended_now(), **files)
        except OSError:
            self.progress.warn(f"the status of {self.run.path} could not be written")

    def _ended(self, kind: Any, reason: str = "", signal: int = 0) -> Outcome:
        return Outcome(kind, str(self.run.path), reason, signal=signal)
