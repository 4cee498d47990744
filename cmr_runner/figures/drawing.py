"""Draw the figures that were asked for, on several cores where that is possible."""

import multiprocessing
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from cmr_runner.figures.catalogue import Figure
from cmr_runner.results.reading import Run
from cmr_runner.runs.atomic import replace_file


@dataclass(frozen=True)
class DrawingJob:
    runs: Sequence[Run]
    out: Path
    formats: tuple[str, ...]
    dpi: int


@dataclass(frozen=True)
class Outcome:
    """What became of one figure: its drawings (stem below the output directory, caption), what was left out, and why
    it stopped, if it did."""

    drawn: list[tuple[Path, str]]
    omitted: list[str]
    error: str = ""


def outcomes(job: DrawingJob, figures: Sequence[Figure], jobs: int) -> Iterator[Outcome]:
    """Draw each figure, in order."""
    jobs = min(jobs, len(figures))
    if jobs <= 1 or "fork" not in multiprocessing.get_all_start_methods():
        yield from (outcome(job, figure) for figure in figures)
        return
    # Imported here, so that the forked workers need not.
    for module in ("matplotlib.backends.backend_agg", "matplotlib.backends.backend_pdf", "cmr_runner.figures.style"):
        import_module(module)

    with multiprocessing.get_context("fork").Pool(jobs, _start_worker, (job,)) as pool:
        yield from pool.imap(_outcome_in_worker, figures)


def outcome(job: DrawingJob, figure: Figure) -> Outcome:
    from cmr_runner.figures.style import Omission, house_style, save

    drawn: list[tuple[Path, str]] = []
    omitted: list[str] = []
    try:
        with house_style():
            for drawing in figure.drawings(job.runs):
                if isinstance(drawing, Omission):
                    omitted.append(drawing.text)
                    continue
                paths = save(drawing, job.out, job.formats, job.dpi)
                drawn.append((paths[0].relative_to(job.out).with_suffix(""), drawing.caption))
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        # One figure's data may be odd beyond what it foresees; the others are still wanted.
        return Outcome(drawn, omitted, f"{type(error).__name__}: {error}")
    return Outcome(drawn, omitted)


def write_captions(out: Path, captions: Sequence[tuple[Path, str]]) -> None:
    """captions.md, what a reader of each figure must be told."""
    if captions:
        text = "# Captions\n\n" + "".join(f"- `{path.as_posix()}`: {caption}\n" for path, caption in captions)
        replace_file(out / "captions.md", text.encode())


_job: DrawingJob


def _start_worker(job: DrawingJob) -> None:
    global _job
    _job = job
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle


def _outcome_in_worker(figure: Figure) -> Outcome:
    return outcome(_job, figure)
