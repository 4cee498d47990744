"""cmr-report: one self-contained HTML page on all runs, with the same summary as CSV and Markdown."""

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from cmr_runner.commands.arguments import OneLineParser, chosen_runs, exit_code, runs_parser


def main(argv: Sequence[str] | None = None) -> int:
    parser = runs_parser(
        "cmr-report", "Report on runs: report.html (self-contained), summary.csv and summary.md.", "report"
    )
    options = parser.parse_args(argv)
    options.paths = options.paths or [Path("outputs")]
    options.out = options.out or options.paths[0] / "report"
    return exit_code(parser.prog, partial(report, parser, options))


def report(parser: OneLineParser, options: argparse.Namespace) -> int:
    runs, notes = chosen_runs(parser, options)
    from cmr_runner.report.files import write_report

    print(write_report(runs, notes, [str(path) for path in options.paths], options.out), end="\n\n")
    print(f"wrote {options.out / 'report.html'}, summary.csv, summary.md (also by epoch and by run)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
