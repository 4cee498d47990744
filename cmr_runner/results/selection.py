"""`--filter key=value,value`: which runs are meant."""

import difflib
from collections.abc import Sequence

from cmr_runner.results.reading import Run, value_text


class SelectionError(ValueError):
    """A filter or field that fits none of the runs; the message is for the user."""


def selected(runs: Sequence[Run], filters: Sequence[str]) -> list[Run]:
    """The runs that meet every filter; within one, any of its values will do."""
    chosen = list(runs)
    for text in filters:
        key, values = parsed(text)
        check_field(chosen, key)
        present = [run for run in chosen if key in run.fields]
        matching = [run for run in present if any(_same(run.fields[key], value) for value in values)]
        if not matching:
            there = sorted({value_text(run.fields[key]) for run in present})
            raise SelectionError(f"no run has {text}; {key} is one of {_some(there)}")
        chosen = matching
    return chosen


def check_filters(runs: Sequence[Run], filters: Sequence[str]) -> None:
    """Refuse a filter of the wrong form or of an unknown field; a value that no run has yet is allowed."""
    for text in filters:
        key, _ = parsed(text)
        if runs:
            check_field(runs, key)


def parsed(text: str) -> tuple[str, list[str]]:
    key, equals, values = text.partition("=")
    wanted = [value for value in values.split(",") if value]
    if not (key and equals and wanted):
        raise SelectionError(f"{text!r} is not of the form key=value,value")
    return key, wanted


def check_field(runs: Sequence[Run], key: str) -> None:
    known = sorted({field for run in runs for field in run.fields})
    if key not in known:
        near = difflib.get_close_matches(key, known, n=1) or [name for name in known if name.endswith(f".{key}")]
        hint = f"; did you mean {near[0]}?" if near else ""
        raise SelectionError(f"{key!r} is not a field of these runs{hint}; allowed: {_some(known)}")


def _same(value: object, wanted: str) -> bool:
    if value_text(value) == wanted:
        return True
    try:
        return float(value_text(value)) == float(wanted)
    except ValueError:
        return False


def _some(words: Sequence[str], most: int = 24) -> str:
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return ", ".join(words[:most]) + more
