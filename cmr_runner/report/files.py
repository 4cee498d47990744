"""What cmr-report writes and prints: report.html, summary.csv and summary.md."""

from collections.abc import Callable, Sequence
from pathlib import Path

from cmr_runner.paper.reproduction import COMPARISON_HEADER, Comparison, reproduction
from cmr_runner.paper.verdicts import RULE
from cmr_runner.report.page import page
from cmr_runner.results.details import epoch_header, epoch_rows, run_header, run_rows, time_text
from cmr_runner.results.differences import DIFFERENCE_HEADER, DIFFERENCE_NOTE, differences
from cmr_runner.results.grouping import Group, experiments
from cmr_runner.results.reading import Run
from cmr_runner.results.summary import TABLE_NOTE, summary_csv, summary_header, summary_rows
from cmr_runner.results.text_table import aligned, markdown
from cmr_runner.runs.atomic import replace_file


def write_report(
    runs: Sequence[Run], notes: Sequence[str], places: Sequence[str], out: Path, provenance: bool = False
) -> str:
    """Write the three files; return what the command prints."""
    found = experiments(runs)
    comparisons = reproduction(runs)
    texts = {
        "report.html": page(found, comparisons, notes, places, provenance),
        "summary.csv": summary_csv(found),
        "summary.md": summary_markdown(found, comparisons, differences(runs)),
    }
    out.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        replace_file(out / name, text.encode())
    return summary_text(found, comparisons)


def report_page(runs: Sequence[Run], notes: Sequence[str], places: Sequence[str], provenance: bool) -> str:
    return page(experiments(runs), reproduction(runs), notes, places, provenance)


def summary_text(found: Sequence[tuple[str, Sequence[Group]]], comparisons: Sequence[Comparison]) -> str:
    parts = [f"{name}\n{aligned(summary_header(groups), summary_rows(groups))}" for name, groups in found]
    parts += [TABLE_NOTE]
    parts += ["\n".join(_comparison_text(one, aligned)) for one in comparisons]
    return "\n\n".join(parts)


def summary_markdown(
    found: Sequence[tuple[str, Sequence[Group]]],
    comparisons: Sequence[Comparison],
    to_vanilla: Sequence[tuple[str, list[list[str]]]],
) -> str:
    parts = ["# Results", f"Final values. {TABLE_NOTE}"]
    for name, groups in found:
        parts += [f"## {name}", markdown(summary_header(groups), summary_rows(groups))]
    parts += ["# Difference to vanilla", DIFFERENCE_NOTE]
    for name, rows in to_vanilla:
        parts += [f"## {name}, less vanilla", markdown(DIFFERENCE_HEADER, rows)]
    parts += ["# Paper against measured", RULE]
    for one in comparisons:
        heading, *table = _comparison_text(one, markdown)
        parts += [f"## {heading}", *table]
    parts += [
        "# Epoch by epoch",
        "σ_min, σ_max and stable rank are medians over layers.",
    ]
    for name, groups in found:
        parts += [f"## {name}, by epoch", markdown(epoch_header(groups), epoch_rows(groups))]
    parts += ["# Run by run", time_text(found)]
    for name, groups in found:
        parts += [f"## {name}, by run", markdown(run_header(groups), run_rows(groups))]
    return "\n\n".join(parts) + "\n"


def _comparison_text(one: Comparison, table: Callable[[Sequence[str], Sequence[Sequence[str]]], str]) -> list[str]:
    """Heading and table; where no run is in the paper's setting, which command makes such runs."""
    if not one.source:
        return [f"{one.title}: no runs in the paper's setting; make them with {one.command}"]
    return [f"{one.title}: measured on {one.source}", table(COMPARISON_HEADER, comparison_rows(one))]


def comparison_rows(one: Comparison) -> list[list[str]]:
    return [[row.claim, row.paper, row.measured, row.interval, str(row.n or "–"), row.verdict.text] for row in one.rows]
