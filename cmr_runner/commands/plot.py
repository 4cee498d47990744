"""cmr-plot: figures from the CSV files of runs."""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from cmr_runner.commands.arguments import (
    INTERRUPTED,
    NothingFound,
    OneLineParser,
    chosen_runs,
    exit_code,
    filters_refused,
    found_runs,
    runs_parser,
    whole_number,
)
from cmr_runner.commands.settings import cores
from cmr_runner.figures.catalogue import FIGURES, NAMES, Figure, by_figure
from cmr_runner.figures.drawing import Target, jobs_of, outcomes, write_captions
from cmr_runner.results.grouping import experiments
from cmr_runner.results.memory import stamp
from cmr_runner.results.reading import Run
from cmr_runner.results.selection import SelectionError, check_field, check_filters
from cmr_runner.results.summary import TABLE_NOTE, summary_header, summary_rows
from cmr_runner.results.text_table import aligned
from cmr_runner.runs.columns import RUN_FILE, TABLES

FORMATS = ("png", "pdf", "svg")


def main(argv: Sequence[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(argv)
    options.paths = options.paths or [Path("outputs")]
    options.out = options.out or options.paths[0] / "figures"
    work = list_groups if options.list else follow if options.watch else draw
    with filters_refused(parser):
        return exit_code(parser.prog, partial(work, parser, options))


def list_groups(parser: OneLineParser, options: argparse.Namespace) -> int:
    runs, _ = chosen_runs(parser, options)
    for experiment, groups in experiments(runs):
        print(f"{experiment}: {len(groups)} group(s), {sum(len(group.runs) for group in groups)} run(s)")
        print(aligned(summary_header(groups), summary_rows(groups)))
        for run in (run for group in groups for run in group.partial if run.error):
            print(f"{run.name}: {run.ending_and_reason}")
        print()
    print(TABLE_NOTE)
    return 0


def draw(parser: OneLineParser, options: argparse.Namespace) -> int:
    """Draw what there are runs for; say what is missing, and how to make it."""
    runs, _ = chosen_runs(parser, options)
    if options.by:
        _check_by(parser, runs, options.by)
    figures = [by_figure(options.by)] if options.by else []
    figures += [figure for figure in FIGURES if _asked_for(figure, options)]
    target = Target(options.out, options.format, options.dpi)
    jobs = jobs_of(figures, runs)
    captions, failed, redrawn, done = [], 0, 0, set()
    for job, outcome in zip(jobs, outcomes(target, jobs, options.jobs), strict=True):
        name = job.figure.name
        for stem, caption in outcome.drawn:
            done.add(name)
            captions.append((stem, caption))
            redrawn += not outcome.unchanged
            file = stem if stem.endswith(".gif") else f"{stem}.{_extensions(options.format)}"
            print(f"{name:<16} {options.out / file}{' (unchanged)' * outcome.unchanged}", flush=True)
        if outcome.error:
            done.add(name)
            failed += 1
            print(f"{name:<16} cannot be drawn: {outcome.error}", file=sys.stderr)
    for figure in figures:
        if figure.name not in done:
            print(f"{figure.name:<16} not drawn: needs {figure.needs}; make them with: {figure.command}")
    print(f"{len(captions)} pictures, {redrawn} drawn now{'' if options.all else '; --all draws the other kinds too'}")
    write_captions(options.out, captions)
    return 1 if failed else 0


def _asked_for(figure: Figure, options: argparse.Namespace) -> bool:
    if options.only:
        return figure.name in options.only
    return options.all or (figure.default and not options.by)


def _extensions(formats: Sequence[str]) -> str:
    return formats[0] if len(formats) == 1 else f"{{{','.join(formats)}}}"


def follow(parser: OneLineParser, options: argparse.Namespace) -> int:
    """Draw now and whenever runs change."""
    check_filters(found_runs(parser, options.paths)[0], options.filter)
    return watch(options.paths, partial(draw, parser, options), options.every)


def watch(
    paths: Sequence[Path], redraw: Callable[[], int], every: float, sleep: Callable[[float], None] = time.sleep
) -> int:
    """Redraw whenever a run's files have changed, until interrupted."""
    seen = None
    while True:
        now = state(paths)
        if now != seen:
            seen = now
            if (code := exit_code("cmr-plot", partial(_drawn_so_far, redraw))) == INTERRUPTED:
                return code
            print(f"watching {', '.join(map(str, paths))} (Ctrl-C ends)", flush=True)
        sleep(every)


def _drawn_so_far(redraw: Callable[[], int]) -> int:
    """A filter that fits no run may fit one that is yet to come."""
    try:
        return redraw()
    except SelectionError as error:
        raise NothingFound(str(error)) from error


def state(paths: Sequence[Path]) -> frozenset[tuple[str, int, int]]:
    """What tells whether runs have changed: name, size and time of every file a figure reads."""
    files = (file for path in paths for name in (RUN_FILE, *TABLES) for file in path.rglob(name))
    return frozenset((str(file), *stamp(file)) for file in files)


def _check_by(parser: OneLineParser, runs: Sequence[Run], key: str) -> None:
    try:
        check_field(runs, key)
    except SelectionError as error:
        parser.error(f"argument --by: {error}")
    if not any(key in run.recipe for run in runs):
        parser.error(f"argument --by: {key!r} does not tell groups of runs apart; name a setting, e.g. optimizer.lr")


def _parser() -> OneLineParser:
    parser = runs_parser(
        "cmr-plot", "Draw the figures of the paper, and more, from finished or running runs.", "figures"
    )
    parser.add_argument(
        "--format",
        type=_one_of(FORMATS),
        default=("png",),
        metavar="F,F",
        help="file formats, of png, pdf and svg (default: png)",
    )
    parser.add_argument("--dpi", type=whole_number(30, 1200), default=200, help="of PNG files (default: 200)")
    usual = ", ".join(figure.name for figure in FIGURES if figure.default)
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument(
        "--only", type=_one_of(NAMES), metavar="NAME,…", help=f"only these (default: {usual}), of {', '.join(NAMES)}"
    )
    chosen.add_argument("--all", action="store_true", help="every kind of figure there are runs for")
    parser.add_argument("--by", metavar="KEY", help="draw how results depend on this field, e.g. optimizer.lr")
    parser.add_argument(
        "--list", action="store_true", help="say what is there, a table of groups of runs; draw nothing"
    )
    parser.add_argument(
        "--jobs", type=whole_number(1, 256), default=cores(), help="processes that draw (default: all cores)"
    )
    parser.add_argument("--watch", action="store_true", help="redraw when runs change, until interrupted")
    parser.add_argument(
        "--every",
        type=whole_number(1, 3600),
        default=5,
        metavar="SECONDS",
        help="how often --watch looks (default: 5)",
    )
    return parser


def _one_of(allowed: Sequence[str]) -> Callable[[str], tuple[str, ...]]:
    def parse(text: str) -> tuple[str, ...]:
        words = tuple(dict.fromkeys(word.strip() for word in text.split(",")))
        for word in words:
            if word not in allowed:
                raise argparse.ArgumentTypeError(f"{word!r} is not one of {', '.join(allowed)}")
        return words

    return parse


if __name__ == "__main__":
    sys.exit(main())
