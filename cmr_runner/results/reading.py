"""Find run directories and read them as plain columns, whatever state they are in.

Everything here tolerates runs that are still going, were killed, or were edited by hand: what cannot be read is left
out and named in `notes`, never raised. numpy and the standard library only, so that reading starts at once.
"""

import csv
import io
import json
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from cmr_runner.results.layer_kinds import row_kinds
from cmr_runner.results.memory import Memory, stamp
from cmr_runner.results.tasks import task_columns
from cmr_runner.runs.columns import LAYERS, METRICS, RUN_FILE, SPECTRA, TABLES, TEXT_COLUMNS
from cmr_runner.runs.identity import recorded_document, without_seed
from cmr_runner.runs.integrity import DIGEST, FILES, record_digest

LONGEST_NUMBER = 300  # digits: a float holds no more


@dataclass(frozen=True)
class Columns:
    """A CSV file as equally long columns: numbers, and text for `layer`. A column the file lacks reads as nan."""

    data: dict[str, np.ndarray] = field(default_factory=dict)
    note: str = ""

    def __len__(self) -> int:
        return len(next(iter(self.data.values()))) if self.data else 0

    def __contains__(self, name: str) -> bool:
        return name in self.data

    def __getitem__(self, name: str) -> np.ndarray:
        return self.data[name] if name in self.data else np.full(len(self), np.nan)

    def rows(self, index: np.ndarray) -> "Columns":
        return Columns({name: column[index] for name, column in self.data.items()}, self.note)


@dataclass(frozen=True)
class Run:
    """One run directory. Files other than run.json are read when first asked for."""

    path: Path
    record: dict[str, Any]

    @cached_property
    def choices(self) -> dict[str, str]:
        """The option chosen of each group. Groups nested in another (`layers@regularizer.layers`) are in the config."""
        choices = _section(self.record, "choices").items()
        return {key: value_text(value) for key, value in choices if "@" not in key and "/" not in key}

    @cached_property
    def config(self) -> dict[str, Any]:
        """The configuration with dotted keys, `_target_` included."""
        return dict(_flat(_section(self.record, "config")))

    @property
    def provenance(self) -> dict[str, Any]:
        return _section(self.record, "provenance")

    @property
    def experiment(self) -> str:
        experiment = _section(self.record, "identity").get("experiment") or _section(self.record, "choices").get(
            "experiment"
        )
        return value_text(experiment or self.path.parent.name)

    @property
    def in_experiment(self) -> bool:
        """Whether the run belongs to an `experiment=` or to a sweep with a `name=`; else it was started on its own."""
        return self.choices.get("experiment", "null") != "null" or bool(self.sweep_name)

    @property
    def sweep_name(self) -> str:
        """The name that the user gave the sweep, if any."""
        name = _section(self.record, "identity").get("experiment")
        named = name not in (None, "single", _section(self.record, "choices").get("experiment"))
        return self.experiment if named else ""

    @property
    def name(self) -> str:
        return value_text(_section(self.record, "identity").get("name") or self.path.name)

    @property
    def hash(self) -> str:
        return value_text(_section(self.record, "identity").get("hash") or "")

    @property
    def status(self) -> str:
        return value_text(self.record.get("status") or "unknown")

    @property
    def method(self) -> str:
        """The regulariser; one that an experiment tuned (`cifar_plain/cmr`) is still the same method."""
        return self.choices.get("regularizer", "none").rpartition("/")[2]

    @property
    def seed(self) -> Any:
        seed = _section(self.record, "config").get("seed", self.provenance.get("seed"))
        return seed if isinstance(seed, int | float | str) else value_text(seed)

    @property
    def error(self) -> str:
        return value_text(_section(self.record, "error").get("message") or "")

    @cached_property
    def recipe(self) -> dict[str, str]:
        """What two seeds of one experiment have in common: what decides the result, without the seed."""
        return {key: value_text(value) for key, value in without_seed(recorded_document(self.record)).items()}

    @cached_property
    def fields(self) -> dict[str, Any]:
        """Every value a person can filter or group by, by the name typed on the command line."""
        typed = {key: value for key, value in self.config.items() if not key.split(".")[-1].startswith("_")}
        choices = {key: value for key, value in self.choices.items() if key != "experiment"}
        identity = {"experiment": self.experiment, "name": self.name, "hash": self.hash, "status": self.status}
        return identity | choices | typed | {"seed": self.seed}

    @cached_property
    def metrics(self) -> Columns:
        """metrics.csv with one row per epoch, ascending; of rows that repeat an epoch the last one counts. Runs of a
        stream of tasks get columns over tasks."""
        table = read_columns(self.path / METRICS)
        epochs = table["epoch"]
        finite = np.flatnonzero(np.isfinite(epochs))
        _, last = np.unique(epochs[finite][::-1], return_index=True)
        table = table.rows(finite[::-1][last])
        return Columns(table.data | task_columns(table.data), table.note)

    @cached_property
    def layers(self) -> Columns:
        return read_columns(self.path / LAYERS)

    @cached_property
    def layer_kinds(self) -> np.ndarray:
        """The kind of each row of `layers`."""
        return row_kinds(self.layers.data)

    @cached_property
    def spectra(self) -> Columns:
        return read_columns(self.path / SPECTRA)

    @cached_property
    def expected_epochs(self) -> float:
        """The last epoch the run was to reach, nan where nothing says so."""
        trainer = _section(_section(self.record, "config"), "trainer")
        for value in (trainer.get("epochs"), _section(self.record, "final").get("epochs")):
            if isinstance(value, int | float):
                return float(value)
        return math.nan

    @cached_property
    def complete(self) -> bool:
        """Finished, with every row there. Only complete runs enter a mean."""
        epochs = self.metrics["epoch"]
        return self.status == "completed" and len(epochs) > 0 and not epochs[-1] < self.expected_epochs

    @cached_property
    def ending(self) -> str:
        """How the run ended, in the word a legend uses: `completed`, `cut short` or its status."""
        return "cut short" if self.status == "completed" and not self.complete else self.status

    @property
    def ending_and_reason(self) -> str:
        return f"{self.ending}: {self.error}" if self.error else self.ending


def read_columns(path: Path) -> Columns:
    """A CSV as columns. A last line without its newline was cut while being written and does not count."""
    try:
        if not path.is_file():  # a FIFO would be read for ever
            return Columns(note=f"{path.name} is missing" if not path.exists() else f"{path.name} is no file")
        text = path.read_text(encoding="utf-8", errors="replace").replace("\0", "")
    except OSError as error:
        return Columns(note=f"{path.name} cannot be read: {error.strerror}")
    whole, _, cut = text.rpartition("\n")
    try:
        lines = list(csv.reader(io.StringIO(whole)))
    except csv.Error:
        return Columns(note=f"{path.name} is not a CSV file")
    if not lines:
        return Columns(note=f"{path.name} is empty")
    header, body = lines[0], [line for line in lines[1:] if line]
    rows = [line for line in body if len(line) == len(header)]
    left_out = len(body) - len(rows) + bool(cut)
    note = f"{path.name}: {left_out} damaged line{'s' * (left_out != 1)} left out" if left_out else ""
    cells: Iterable[tuple[str, ...]] = zip(*rows, strict=True) if rows else [()] * len(header)
    return Columns({name: _column(name, column) for name, column in zip(header, cells, strict=True)}, note)


def find_runs(paths: Sequence[Path]) -> tuple[list[Run], list[str]]:
    """All runs below the paths, in a fixed order, and notes on what was passed over.

    A run found twice (the same experiment, configuration and seed in two directories) counts once, or it would pass
    for another seed.
    """
    found: list[Run] = []
    notes: list[str] = []
    memory = Memory(paths, (RUN_FILE, METRICS))
    for directory in sorted({place: d for path in paths for place, d in _run_directories(path)}.values()):
        try:
            known = memory.recall(directory)
            found.append(_recalled(directory, known) if known else read_run(directory))
        except DamagedRun as damage:
            notes.append(f"{directory}: {damage}, run left out")
    tell_seeds_apart(found)
    runs: dict[tuple, Run] = {}
    for run in found:
        known = bool(_section(run.record, "config"))
        key = (run.experiment, value_text(run.seed), *sorted(run.recipe.items())) if known else (run.path,)
        if key not in runs:
            runs[key] = run
            continue
        kept, dropped = (runs[key], run) if _progress(runs[key]) >= _progress(run) else (run, runs[key])
        runs[key] = kept
        notes.append(f"{dropped.path}: the same run as {kept.path}, left out")
    by_path = {run.path: run for run in runs.values()}
    memory.keep(by_path, lambda directory: _remembered(by_path[directory]))
    return list(runs.values()), notes


def tell_seeds_apart(runs: Iterable[Run]) -> None:
    """Put back a seed of its own (`dataset.seed: 0`) that one run of an experiment took for a copy of the run's seed,
    because the two happen to be equal there: the other runs show that it is none."""
    parts: dict[str, list[Run]] = {}
    for run in runs:
        parts.setdefault(run.experiment, []).append(run)
    for part in parts.values():
        own = {key for run in part for key in run.recipe if key.endswith(".seed")}
        for run in part:
            if missing := own - run.recipe.keys():
                run.recipe.update({key: value_text(run.config[key]) for key in missing & run.config.keys()})


def _remembered(run: Run) -> dict[str, Any]:
    metrics = {name: column.tolist() for name, column in run.metrics.data.items()}
    return {"record": run.record, "recipe": run.recipe, "metrics": metrics, "note": run.metrics.note}


def _recalled(directory: Path, known: dict[str, Any]) -> Run:
    run = Run(directory, known["record"])
    columns = {name: np.array(values, dtype=float) for name, values in known["metrics"].items()}
    # As cached_property keeps them once they were asked for.
    run.__dict__.update(recipe=known["recipe"], metrics=Columns(columns, known["note"]))
    return _checked(run)


class DamagedRun(ValueError):
    """A run directory that does not hold what a run wrote; the message says what is wrong."""


def read_run(directory: Path) -> Run:
    """The run kept in a directory. Raises DamagedRun, and nothing else, whatever is in there."""
    file = directory / RUN_FILE
    if not file.is_file():
        raise DamagedRun(f"{RUN_FILE} is no file")
    try:
        text = file.read_text(encoding="utf-8")
        record = json.loads(text, parse_int=_whole_number)
        if not isinstance(record, dict):
            raise DamagedRun(f"{RUN_FILE} is not an object")
        run = Run(directory, record)
        if "\\ud" in text.lower():
            json.dumps(record, ensure_ascii=False).encode()  # half a character cannot be written anywhere
        if DIGEST in record and record[DIGEST] != record_digest(record):
            raise DamagedRun(f"{RUN_FILE} does not have the digest it was written with")
        # Whatever is wrong with the values shows when all of them are read.
        _ = run.recipe, run.error
    except DamagedRun:
        raise
    except (OSError, ValueError, TypeError, ArithmeticError, AttributeError, RecursionError) as error:
        raise DamagedRun(f"{RUN_FILE} cannot be read ({type(error).__name__})") from error
    return _checked(run)


def _checked(run: Run) -> Run:
    """The run, if its tables have the sizes that run.json records: a look that costs no reading."""
    for name, expected in _section(run.record, FILES).items():
        size = stamp(os.path.join(run.path, name))[0]
        if isinstance(expected, dict) and name in TABLES and size != expected.get("size"):
            raise DamagedRun(f"{name} has {size} bytes, not {expected.get('size')}")
    return run


def _whole_number(digits: str) -> int:
    if len(digits) > LONGEST_NUMBER:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


def run_notes(runs: Iterable[Run]) -> list[str]:
    """What reading the runs' metrics came upon."""
    return [f"{run.path}: {run.metrics.note}" for run in runs if run.metrics.note]


def value_text(value: Any) -> str:
    """A configuration value as a person types it; 1 and 1.0 are the same value."""
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, bool):
        return _WORDS[value]
    return f"{value:.12g}" if isinstance(value, int | float) else json.dumps(value)


_WORDS = {None: "null", True: "true", False: "false"}


def varying_fields(runs: Sequence[Run]) -> list[str]:
    """The fields that take more than one value among the runs that have them, name, hash and status aside."""
    values: dict[str, set[str]] = {}
    for run in runs:
        for key, value in run.fields.items():
            values.setdefault(key, set()).add(value_text(value))
    return [key for key, seen in values.items() if len(seen) > 1 and key not in ("name", "hash", "status")]


def _run_directories(path: Path) -> Iterator[tuple[str, Path]]:
    """Every run directory, with its one name in the file system: only the path itself can be a link."""
    start, place = str(path), str(path.resolve())
    for folder, below, files in os.walk(start):
        if RUN_FILE in files:
            below.clear()
            yield place + folder.removeprefix(start), Path(folder)
        below[:] = sorted(name for name in below if not name.startswith("."))


def _progress(run: Run) -> tuple[bool, int]:
    return run.complete, len(run.metrics)


def _section(record: dict[str, Any], key: str) -> dict[str, Any]:
    value = record.get(key)
    return value if isinstance(value, dict) else {}


def _flat(node: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in node.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value if isinstance(value, int | float | str) else value_text(value)


def _column(name: str, cells: Sequence[str]) -> np.ndarray:
    if name in TEXT_COLUMNS:
        return np.array(cells, dtype=object)
    try:
        return np.array([float(cell or "nan") for cell in cells])
    except ValueError:
        return np.array([_number(cell) for cell in cells])


def _number(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return math.nan
