"""cmr-report: one self-contained HTML page on all runs, with the same summary as CSV and Markdown."""

import argparse
import hashlib
import sys
from collections.abc import Sequence
from functools import partial
from html import escape
from pathlib import Path

from cmr_runner.commands.arguments import (
    NothingFound,
    OneLineParser,
    chosen_runs,
    exit_code,
    filters_refused,
    found_runs,
    runs_parser,
    whole_number,
)
from cmr_runner.commands.plot import state
from cmr_runner.results.selection import SelectionError, check_filters
from cmr_runner.runs.integrity import FILES, file_damage

TRACKERS = ("tensorboard", "mlflow", "wandb")


def main(argv: Sequence[str] | None = None) -> int:
    parser = runs_parser(
        "cmr-report", "Report on runs: report.html (self-contained), summary.csv and summary.md.", "report"
    )
    parser.add_argument(
        "--provenance",
        action="store_true",
        help="name machines and directories on the page",
    )
    parser.add_argument(
        "--verify", action="store_true", help="check the digests of all files that the runs keep; write nothing"
    )
    parser.add_argument(
        "--serve", action="store_true", help="show the report in a browser on this machine, and follow runs that go on"
    )
    parser.add_argument("--port", type=whole_number(0, 65535), default=0, help="of --serve (default: one that is free)")
    parser.add_argument("--export", choices=TRACKERS, help="write the runs into this tracker, and no report")
    options = parser.parse_args(argv)
    options.paths = options.paths or [Path("outputs")]
    options.out = options.out or options.paths[0] / "report"
    work = verify if options.verify else serve if options.serve else export if options.export else report
    with filters_refused(parser):
        return exit_code(parser.prog, partial(work, parser, options))


def serve(parser: OneLineParser, options: argparse.Namespace) -> int:
    """Serve the page on loopback until interrupted."""
    from cmr_runner.report.files import report_page
    from cmr_runner.report.live import LiveServer

    check_filters(found_runs(parser, options.paths)[0], options.filter)
    places = [str(path) for path in options.paths]

    def page() -> str:
        try:
            runs, notes = chosen_runs(parser, options, quiet=True)
        except (NothingFound, SelectionError) as error:
            return f"<!doctype html><title>cmr-report</title><body><p>{escape(str(error))}</p></body>"
        return report_page(runs, notes, places, options.provenance)

    def digest() -> str:
        return hashlib.sha256(repr(sorted(state(options.paths))).encode()).hexdigest()

    with LiveServer(page, digest, options.port) as server:
        print(f"{server.address} follows {', '.join(places)} (Ctrl-C ends)", flush=True)
        server.serve_forever()
    return 0


def verify(parser: OneLineParser, options: argparse.Namespace) -> int:
    """Compare every file that a run keeps with the digest in its run.json."""
    runs, notes = found_runs(parser, options.paths)
    damaged = {run.path: damage for run in runs if (damage := file_damage(run.path, run.record))}
    unknown = [run for run in runs if not run.record.get(FILES)]
    for path, damage in damaged.items():
        print(f"{path}: {'; '.join(damage)}")
    for note in notes:
        print(note)
    intact = len(runs) - len(damaged) - len(unknown)
    unreadable = sum("run left out" in note for note in notes)
    print(
        f"{intact} intact, {len(damaged) + unreadable} damaged, "
        f"{len(unknown)} not finished or of a version that recorded no digests"
    )
    return 1 if damaged or unreadable else 0


def export(parser: OneLineParser, options: argparse.Namespace) -> int:
    """Write finished and unfinished runs into a tracker, where it does not hold them yet."""
    runs, _ = chosen_runs(parser, options)
    place = options.paths[0] / options.export
    try:
        from cmr_runner.tracking.export import exported

        count = exported(runs, options.export, place)
    except ModuleNotFoundError as error:
        parser.error(f"--export {options.export}: no module {error.name}: pip install 'cmr-runner[{options.export}]'")
    print(f"wrote {count} runs to {place}")
    return 0


def report(parser: OneLineParser, options: argparse.Namespace) -> int:
    runs, notes = chosen_runs(parser, options)
    from cmr_runner.report.files import write_report

    print(write_report(runs, notes, [str(path) for path in options.paths], options.out, options.provenance), end="\n\n")
    print(f"wrote {options.out / 'report.html'}, summary.csv, summary.md (also by epoch and by run)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
