"""What cmr-plot and cmr-report share: which runs are meant, where results go, and errors in one line."""

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from cmr_runner.results.reading import Run, find_runs, run_notes
from cmr_runner.results.selection import SelectionError, selected

MOST_NOTES = 10
INTERRUPTED = 130  # as shells report Ctrl-C


class OneLineParser(argparse.ArgumentParser):
    """An argument parser whose errors take one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


class NothingFound(Exception):
    """There are no runs to work on; the message is for the user."""


def runs_parser(prog: str, description: str, out: str) -> OneLineParser:
    parser = OneLineParser(prog=prog, description=description)
    parser.add_argument("paths", nargs="*", metavar="PATH", type=Path, help="directories of runs (default: outputs)")
    parser.add_argument("--out", type=Path, metavar="DIR", help=f"where to write (default: {out} in the first PATH)")
    parser.add_argument(
        "--filter",
        action="append",
        default=[],
        metavar="KEY=VALUE,…",
        help="only runs with one of the values, e.g. regularizer=cmr,none or trainer.epochs=5; may be given again",
    )
    return parser


def chosen_runs(parser: OneLineParser, options: argparse.Namespace, quiet: bool = False) -> tuple[list[Run], list[str]]:
    """The runs meant by the arguments, and notes on what could not be read, which also go to standard error. Raises
    NothingFound where there are no runs, SelectionError where the filters leave none of them."""
    runs, notes = found_runs(parser, options.paths)
    if not runs:
        say_notes(parser.prog, notes)
        places = ", ".join(map(str, options.paths))
        raise NothingFound(f"no runs under {places}; `cmr-run -m experiment=kappa_stress` makes some")
    chosen = selected(runs, options.filter)
    notes += run_notes(chosen)
    if not quiet:
        say_notes(parser.prog, notes)
    return chosen, notes


def found_runs(parser: OneLineParser, paths: Sequence[Path]) -> tuple[list[Run], list[str]]:
    for path in paths:
        if not path.exists():
            parser.error(f"argument PATH: {path} does not exist")
    return find_runs(paths)


@contextmanager
def filters_refused(parser: OneLineParser) -> Iterator[None]:
    """A filter that fits no run is a wrong argument."""
    try:
        yield
    except SelectionError as error:
        parser.error(f"argument --filter: {error}")


def say_notes(prog: str, notes: Sequence[str]) -> None:
    for note in notes[:MOST_NOTES]:
        print(f"{prog}: note: {note}", file=sys.stderr)
    if len(notes) > MOST_NOTES:
        print(f"{prog}: note: and {len(notes) - MOST_NOTES} more like these", file=sys.stderr)


def exit_code(prog: str, work: Callable[[], int]) -> int:
    """Run the command; an error from outside it is reported in one line."""
    try:
        return work()
    except NothingFound as error:
        print(f"{prog}: {error}", file=sys.stderr)
    except BrokenPipeError:
        # The reader (head, less) has gone: nothing is left to say, nor may the interpreter's last flush say it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        print(f"{prog}: {error.strerror or error}: {error.filename or ''}", file=sys.stderr)
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return INTERRUPTED
    return 1


def whole_number(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not text.isdecimal() or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {low} to {high}")
        return int(text)

    return parse
