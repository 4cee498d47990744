"""The one driver of all pictures: find what each is drawn for, draw what changed since last time, on several cores."""

import hashlib
import json
import multiprocessing
import re
import signal
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from cmr_runner.figures.catalogue import Figure
from cmr_runner.results.grouping import Setting
from cmr_runner.results.memory import stamp
from cmr_runner.results.reading import Run
from cmr_runner.runs.atomic import replace_file
from cmr_runner.runs.columns import RUN_FILE, TABLES

LEDGER = ".drawn.json"
CAPTION = re.compile(r"^- `(.+?)`: (.*)$", re.MULTILINE)
# What was drawn for a key, and size and time of each file then.
Entry = tuple[list[tuple[str, str]], dict[str, tuple[int, int]]]
Ledger = dict[str, Entry]
ROOMS = ("results", "paper", "figures")  # the code that decides how a picture looks


@dataclass(frozen=True)
class Job:
    """One picture, or a few, of one set of runs."""

    figure: Figure
    setting: Setting


@dataclass(frozen=True)
class Target:
    """Where pictures go, and in which formats."""

    out: Path
    formats: tuple[str, ...]
    dpi: int


@dataclass(frozen=True)
class Outcome:
    """What became of a job: the pictures (stem below the output directory, caption), the files, why it stopped."""

    drawn: list[tuple[str, str]] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    error: str = ""
    unchanged: bool = False


def jobs_of(figures: Sequence[Figure], runs: Sequence[Run]) -> list[Job]:
    return [Job(figure, setting) for figure in figures for setting in figure.select(runs)]


def outcomes(target: Target, jobs: Sequence[Job], processes: int) -> Iterator[Outcome]:
    """What became of each job, in order. A job whose runs and code are as they were is not drawn again."""
    known = _read_ledger(target.out)
    keys = [_key(target, job) for job in jobs]
    fresh = [_still_there(target.out, known.get(key)) for key in keys]
    made = _drawn(target, [job for job, there in zip(jobs, fresh, strict=True) if not there], processes)
    ledger: Ledger = {}
    try:
        for key, there in zip(keys, fresh, strict=True):
            outcome = Outcome(known[key][0], list(known[key][1]), unchanged=True) if there else next(made)
            if not outcome.error:
                ledger[key] = (outcome.drawn, {file: stamp(target.out / file) for file in outcome.files})
            yield outcome
    finally:
        made.close()
        if ledger != known:
            # An entry without files says that a job of this call drew nothing; no file would show when it is outdated.
            _write_ledger(target.out, {key: entry for key, entry in known.items() if entry[1]} | ledger)


def _drawn(target: Target, jobs: Sequence[Job], processes: int) -> Generator[Outcome, None, None]:
    processes = min(processes, len(jobs))
    if processes <= 1 or "fork" not in multiprocessing.get_all_start_methods():
        yield from (draw(target, job) for job in jobs)
        return
    # Imported here, so that the forked workers need not.
    for module in ("matplotlib.backends.backend_agg", "cmr_runner.figures.style"):
        import_module(module)
    with multiprocessing.get_context("fork").Pool(processes, _start_worker, (target, jobs)) as pool:
        yield from pool.imap(_draw_in_worker, range(len(jobs)))


def draw(target: Target, job: Job) -> Outcome:
    """Draw one job's pictures: note, name and file are alike for all of them."""
    from cmr_runner.figures.style import finish, house_style, save, stem_of

    module, function = job.figure.source.split(":")
    drawings: Callable[[Setting], Iterator[Any]] = getattr(import_module(f"cmr_runner.figures.{module}"), function)
    outcome, setting = Outcome(), job.setting
    try:
        with house_style():
            for drawing in drawings(setting):
                caption = f"{setting.title}. {drawing.note}"
                folder, stem = setting.experiment, stem_of(drawing.stem, setting.distinction)
                if drawing.figure is not None:
                    finish(drawing.figure, caption)
                paths = save(drawing, target.out, folder, stem, target.formats, target.dpi)
                name = paths[0].relative_to(target.out).as_posix()
                outcome.drawn.append((name.rpartition(".")[0] if drawing.figure is not None else name, caption))
                outcome.files.extend(path.relative_to(target.out).as_posix() for path in paths)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        # One picture's data may be odd beyond what it foresees; the others are still wanted.
        return Outcome(outcome.drawn, outcome.files, f"{type(error).__name__}: {error}")
    return outcome


def write_captions(out: Path, captions: Sequence[tuple[str, str]]) -> None:
    """captions.md, what a reader of each figure must be told. Pictures of earlier calls keep theirs while they last."""
    if captions:
        file = out / "captions.md"
        before = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
        said = _kept_captions(out, before) | dict(captions)
        text = "# Captions\n\n" + "".join(f"- `{path}`: {caption}\n" for path, caption in said.items())
        if text != before:
            replace_file(file, text.encode())


def _kept_captions(out: Path, text: str) -> dict[str, str]:
    pictures = [path.relative_to(out) for path in out.glob("*/*")]
    there = {name.as_posix() for path in pictures for name in (path, path.with_suffix(""))}
    return {stem: caption for stem, caption in CAPTION.findall(text) if stem in there}


def _key(target: Target, job: Job) -> str:
    """What a picture depends on: the code, the formats, the labels, and size and time of every file it reads."""
    setting = job.setting
    parts = [
        job.figure.name,
        job.figure.source,
        target.formats,
        target.dpi,
        _code(),
        setting.title,
        setting.distinction,
    ]
    for group in setting.groups:
        parts.append(group.label)
        parts += [(str(run.path), *(stamp(run.path / name) for name in (RUN_FILE, *TABLES))) for run in group.runs]
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:24]


_code_stamp: list[str] = []


def _code() -> str:
    if not _code_stamp:
        package = Path(__file__).parents[1]
        files = sorted(path for room in ROOMS for path in (package / room).rglob("*.py"))
        parts = [version("matplotlib") if find_spec("matplotlib") else "", *(stamp(path) for path in files)]
        _code_stamp.append(hashlib.sha256(repr(parts).encode()).hexdigest())
    return _code_stamp[0]


def _read_ledger(out: Path) -> Ledger:
    try:
        found = json.loads((out / LEDGER).read_text(encoding="utf-8"))
        return {
            key: ([(str(stem), str(caption)) for stem, caption in drawn], {f: tuple(s) for f, s in files.items()})
            for key, (drawn, files) in found.items()
        }
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _write_ledger(out: Path, ledger: Ledger) -> None:
    """Entries whose files were since drawn over or removed are dropped."""
    out.mkdir(parents=True, exist_ok=True)
    kept = {key: entry for key, entry in ledger.items() if _still_there(out, entry)}
    replace_file(out / LEDGER, json.dumps(kept).encode())


def _still_there(out: Path, entry: Entry | None) -> bool:
    return entry is not None and all(stamp(out / file) == was for file, was in entry[1].items())


_work: tuple[Target, Sequence[Job]]


def _start_worker(target: Target, jobs: Sequence[Job]) -> None:
    global _work
    _work = target, jobs
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle


def _draw_in_worker(place: int) -> Outcome:
    target, jobs = _work
    return draw(target, jobs[place])
