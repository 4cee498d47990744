"""The report as one HTML page: text and tables here, charts by the page's own script from the payload."""

import json
import math
import os
import re
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from cmr_runner.paper.reproduction import COMPARISON_HEADER, Comparison, Row
from cmr_runner.paper.verdicts import CLOSE, HOLDS, NOT_REPRODUCED, NOT_RUN, RULE, SAME_DIRECTION, WITHIN
from cmr_runner.report.payload import made, payload
from cmr_runner.results.grouping import Group, symbol
from cmr_runner.results.quantities import (
    ACCURACY,
    GRAD_NORM,
    KAPPA,
    MEAN_MOMENT,
    PERPLEXITY,
    TASK_MEAN,
    VAL_ACCURACY,
    VAL_PERPLEXITY,
)
from cmr_runner.results.reading import Run, value_text, varying_fields
from cmr_runner.results.summary import TABLE_NOTE, summary_header, summary_rows

VERDICT_MARKS = {
    WITHIN: ("good", "✓"),
    HOLDS: ("good", "✓"),
    CLOSE: ("fair", "≈"),
    SAME_DIRECTION: ("fair", "↗"),
    NOT_REPRODUCED: ("poor", "✗"),
    NOT_RUN: ("none", "–"),
}
RUN_QUANTITIES = (
    *(PERPLEXITY, VAL_PERPLEXITY, TASK_MEAN, ACCURACY, VAL_ACCURACY),
    *(KAPPA, GRAD_NORM, MEAN_MOMENT),
)
MOST_OPTIONS = 30
# A path of two parts or more from the root, in text, HTML or JSON.
ABSOLUTE = re.compile(r"""(?<![^\s"'=(,:;>\[])/(?:[\w.@+-]+/)+([\w.@+-]+)""")


def page(
    experiments: Sequence[tuple[str, Sequence[Group]]],
    comparisons: Sequence[Comparison],
    notes: Sequence[str],
    places: Sequence[str],
    provenance: bool = False,
) -> str:
    """The page, made to be sent around: what tells the machine (paths, its name) is on it only with `provenance`."""
    from plotly.offline import get_plotlyjs

    # In the payload's order, by which the page's script finds a run's row.
    runs = [run for _, groups in experiments for group in groups for run in group.runs]
    parts = {
        "title": escape(f"cmr_runner: {_count(len(runs), 'run')} of {_count(len(experiments), 'experiment')}"),
        "overview": _overview(runs, places),
        "reproduction": "".join(map(_comparison, comparisons)),
        "rule": escape(RULE),
        "results": "".join(_results(name, groups) for name, groups in experiments),
        "runs": _run_table(runs),
        "provenance": _provenance(runs, provenance),
        "notes": _notes(notes, runs),
        "payload": script_json(payload(experiments, provenance)),
        "table_note": escape(TABLE_NOTE),
    }
    if not provenance:
        parts = {name: without_paths(text) for name, text in parts.items()}
    parts |= {
        "plotly": get_plotlyjs(),
        "style": asset("report.css"),
        "script": asset("tables.js") + asset("charts.js") + asset("views.js"),
    }
    return re.sub(r"\{\{ (\w+) \}\}", lambda match: parts[match[1]], asset("report.html"))


def without_paths(text: str) -> str:
    """Paths relative to where the report was asked for, and of any others the last part."""
    text = text.replace(f"{Path.cwd()}{os.sep}", "")
    return ABSOLUTE.sub(lambda match: f"…/{match[1]}", text)


def script_json(value: Any) -> str:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def html_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Cells are text and are escaped."""
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in header)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return scrolled(f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")


def scrolled(table: str) -> str:
    """A wide table scrolls by itself, also from the keyboard."""
    return f'<div class="scroll" tabindex="0">{table}</div>'


def _cell(text: str) -> str:
    return f"<td>{escape(text)}</td>"


def _overview(runs: Sequence[Run], places: Sequence[str]) -> str:
    endings = [run.ending for run in runs]
    counts = ", ".join(f"{endings.count(ending)} {ending}" for ending in dict.fromkeys(sorted(endings)))
    where = ", ".join(f"<code>{escape(place)}</code>" for place in places)
    return f"<p>{_count(len(runs), 'run')} under {where}: {escape(counts)}.</p>"


def _comparison(comparison: Comparison) -> str:
    heading = f"<h3>{escape(comparison.title)}</h3>"
    if not comparison.source:
        command = f"<code>{escape(comparison.command)}</code>"
        return f"{heading}<p>None of these runs is in the paper's setting; {command} makes such runs.</p>"
    head = "".join(f'<th scope="col">{column}</th>' for column in COMPARISON_HEADER)
    body = "".join(map(_comparison_row, comparison.rows))
    table = f'<table class="verdicts"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    source = f"<p>Measured on <b>{escape(comparison.source)}</b>, in the paper's setting.</p>"
    return f"{heading}{source}{scrolled(table)}"


def _comparison_row(row: Row) -> str:
    kind, mark = VERDICT_MARKS[row.verdict.kind]
    basis = f'<span class="basis">{escape(row.verdict.basis)}</span>' if row.verdict.basis else ""
    cells = "".join(_cell(cell) for cell in (row.paper, row.measured, row.interval, str(row.n or "–")))
    word = f'<b><span aria-hidden="true">{mark}</span> {escape(row.verdict.kind)}</b>'
    verdict = f'<td class="verdict {kind}">{word}{basis}</td>'
    return f'<tr><th scope="row">{escape(row.claim)}</th>{cells}{verdict}</tr>'


def _results(experiment: str, groups: Sequence[Group]) -> str:
    runs = sum(len(group.runs) for group in groups)
    title = f"{experiment}: {_count(len(groups), 'group')}, {_count(runs, 'run')}"
    table = html_table(summary_header(groups), summary_rows(groups))
    opened = " open" if len(groups) <= 20 else ""
    return f"<details{opened}><summary>{escape(title)}</summary>{table}</details>"


def _run_table(runs: Sequence[Run]) -> str:
    fields = [key for key in varying_fields(runs) if key != "seed"] + ["seed"]
    quantities = [q for q in RUN_QUANTITIES if any(q.column in run.metrics for run in runs)]
    # What came of it before what it was: with many fields the right end is out of sight.
    columns = ["run", "status", "last epoch", *(q.heading for q in quantities), *fields]
    head = "".join(_sort_heading(key, key in fields) for key in columns)
    body = "".join(_run_row(i, run, fields, quantities) for i, run in enumerate(runs))
    tick = '<th scope="col"><span class="hidden">in charts</span></th>'
    table = f'<table id="runs"><thead><tr>{tick}{head}</tr></thead><tbody>{body}</tbody></table>'
    places = {key: columns.index(key) + 1 for key in [*fields, "status"]}  # after the tick
    filters = _column_filters(runs, places)
    return f'<div class="filters" id="column-filters">{filters}</div>{scrolled(table)}'


def _sort_heading(key: str, field: bool) -> str:
    kind = ' class="field"' if field else ""
    button = f'<button type="button">{escape(symbol(key))}</button>'
    return f'<th{kind} scope="col" aria-sort="none" title="{escape(key)}">{button}</th>'


def _run_row(place: int, run: Run, fields: Sequence[str], quantities: Sequence[Any]) -> str:
    finals = [float(q.values(run)[-1]) if len(run.metrics) else math.nan for q in quantities]
    epochs = run.metrics["epoch"]
    last = f"{epochs[-1]:g}" if len(epochs) else ""
    link = f'<button type="button" class="run-link" data-run="{place}">{escape(run.name)}</button>'
    cells = [f'<td class="wide" data-value="{escape(run.name)}">{link}</td>']
    cells += [_value_cell(word, word) for word in (run.ending, last)]
    cells += [_value_cell(f"{x:.4g}" if math.isfinite(x) else "", repr(x)) for x in finals]
    words = [value_text(run.fields[key]) if key in run.fields else "" for key in fields]
    cells += [_value_cell(word, word, "field") for word in words]
    title = f' title="{escape(run.error)}"' if run.error else ""
    tick = f'<td><input type="checkbox" checked data-run="{place}" aria-label="{escape(run.name)} in charts"></td>'
    return f'<tr class="{escape(run.ending.replace(" ", "-"))}"{title}>{tick}{"".join(cells)}</tr>'


def _value_cell(text: str, value: str, kind: str = "") -> str:
    attribute = f' class="{kind}"' if kind else ""
    return f'<td{attribute} data-value="{escape(value)}">{escape(text)}</td>'


def _column_filters(runs: Sequence[Run], places: dict[str, int]) -> str:
    """A choice for each field; `places` says in which column of the table it stands."""
    selects = []
    for key, column in places.items():
        values = [run.ending if key == "status" else value_text(run.fields.get(key, "")) for run in runs]
        distinct = sorted(set(values))
        if 1 < len(distinct) <= MOST_OPTIONS:
            options = "".join(f'<option value="{escape(v)}">{escape(v) or "(none)"}</option>' for v in distinct)
            selects.append(
                f'<label>{escape(symbol(key))} <select data-column="{column}" data-field="{escape(key)}">'
                f'<option value="*">all</option>{options}</select></label>'
            )
    return "".join(selects)


def _provenance(runs: Sequence[Run], machine: bool) -> str:
    """The distinct codes and machines, and how many runs each made."""
    kept: dict[tuple[str, ...], list[Run]] = {}
    for run in runs:
        facts = made(run, machine)
        kept.setdefault(tuple(value for key, value in facts.items() if key not in ("start", "end")), []).append(run)
    rows = [[str(len(of_one)), *key, _span(of_one), _commands(of_one)] for key, of_one in kept.items()]
    header = [key for key in made(runs[0], machine) if key not in ("start", "end")] if runs else []
    return html_table(["runs", *header, "time", "for example"], rows)


def _span(runs: Sequence[Run]) -> str:
    times = sorted(
        value_text(run.provenance[key]) for run in runs for key in ("start", "end") if run.provenance.get(key)
    )
    return f"{times[0][:16]} to {times[-1][:16]}" if times else ""


def _commands(runs: Sequence[Run]) -> str:
    return next((value_text(run.provenance["command"]) for run in runs if run.provenance.get("command")), "")


def _notes(notes: Sequence[str], runs: Sequence[Run]) -> str:
    said = [
        *notes,
        *(f"{run.name}: {run.ending_and_reason}" for run in runs if not run.complete),
    ]
    if not said:
        return "<p>Every run is complete and every file could be read.</p>"
    return f"<ul>{''.join(f'<li>{escape(note)}</li>' for note in said)}</ul>"


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}{'s' * (n != 1)}"


def asset(name: str) -> str:
    return (files("cmr_runner.report") / "assets" / name).read_text(encoding="utf-8")
