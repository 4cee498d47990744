"""What cmr-report writes and prints: report.html, summary.csv and summary.md."""

from collections.abc import Sequence
from pathlib import Path

from cmr_runner.paper.reproduction import Comparison, reproduction
from cmr_runner.paper.verdicts import RULE
from cmr_runner.report.page import page
from cmr_runner.results.details import EPOCH_HEADER, RUN_HEADER, epoch_rows, run_rows, time_text
from cmr_runner.results.grouping import Group, experiments
from cmr_runner.results.reading import Run
from cmr_runner.results.summary import HEADER, summary_csv, summary_rows
from cmr_runner.results.text_table import aligned, markdown
from cmr_runner.runs.atomic import replace_file

COMPARISON_HEADER = ("claim", "paper", "measured", "95 % interval", "seeds", "verdict")


def write_report(runs: Sequence[Run], notes: Sequence[str], places: Sequence[str], out: Path) -> str:
    """Write the three files; return what the command prints."""
    found = experiments(runs)
    comparisons = reproduction(runs)
    texts = {
        "report.html": page(found, comparisons, notes, places),
        "summary.csv": summary_csv(found),
        "summary.md": summary_markdown(found, comparisons),
    }
    out.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        replace_file(out / name, text.encode())
    return summary_text(found, comparisons)


def summary_text(found: Sequence[tuple[str, Sequence[Group]]], comparisons: Sequence[Comparison]) -> str:
    parts = [f"{name}\n{aligned(HEADER, summary_rows(groups))}" for name, groups in found]
    parts += [f"{_heading(one)}\n{aligned(COMPARISON_HEADER, _rows(one))}" for one in comparisons]
    return "\n\n".join(parts)


def summary_markdown(found: Sequence[tuple[str, Sequence[Group]]], comparisons: Sequence[Comparison]) -> str:
    parts = ["# Results", "Final values, mean ± standard deviation over seeds; n counts complete runs."]
    for name, groups in found:
        parts += [f"## {name}", markdown(HEADER, summary_rows(groups))]
    parts += ["# Paper against measured", RULE]
    for one in comparisons:
        parts += [f"## {_heading(one)}", markdown(COMPARISON_HEADER, _rows(one))]
    parts += [
        "# Epoch by epoch",
        "Mean ± standard deviation over seeds; σ_min, σ_max and stable rank are medians over layers.",
    ]
    for name, groups in found:
        parts += [f"## {name}, by epoch", markdown(EPOCH_HEADER, epoch_rows(groups))]
    parts += ["# Run by run", time_text(found)]
    for name, groups in found:
        parts += [f"## {name}, by run", markdown(RUN_HEADER, run_rows(groups))]
    return "\n\n".join(parts) + "\n"


def _heading(one: Comparison) -> str:
    if not one.source:
        return f"{one.title}: not run; make it with {one.command}"
    departed = f" (departs from the paper: {'; '.join(one.departures)})" if one.departures else ""
    return f"{one.title}: measured on {one.source}{departed}"


def _rows(one: Comparison) -> list[list[str]]:
    return [[row.claim, row.paper, row.measured, row.interval, str(row.n or "–"), row.verdict.kind] for row in one.rows]
