"""Final values over seeds: one row per group, as text, Markdown and CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass

from cmr_runner.results.grouping import Group, headline, validation
from cmr_runner.results.numerals import plus_minus, times_over
from cmr_runner.results.quantities import (
    ACCURACY,
    FIRST_TASK,
    LAST_TASK,
    NATS,
    PERPLEXITY,
    SUMMARY,
    TASK_MEAN,
    VAL_NATS,
    Quantity,
)
from cmr_runner.results.reading import value_text
from cmr_runner.results.statistics import centre, spread, t_interval


@dataclass(frozen=True)
class Cell:
    """A quantity's final value over the complete runs of a group."""

    quantity: Quantity
    values: tuple[float, ...]
    infinite: int = 0  # seeds beside them: a singular matrix has κ = ∞

    @classmethod
    def of(cls, quantity: Quantity, values: Sequence[float]) -> Cell:
        """Of all values; nan is no value."""
        return cls(quantity, tuple(filter(math.isfinite, values)), sum(map(math.isinf, values)))

    @property
    def text(self) -> str:
        """Centre and spread on the quantity's own scale; the centre alone for one seed, a dash for none."""
        if not self.values:
            return "∞" if self.infinite else "–"
        log = self.quantity.log
        digits = 4 if self.quantity.factor == 100.0 or self.quantity in (NATS, VAL_NATS) else 3
        found = (times_over if log else plus_minus)(centre(self.values, log), spread(self.values, log), digits)
        return f"{found} ({self.infinite} of {self.infinite + len(self.values)} ∞)" if self.infinite else found


def shown_quantities(groups: Sequence[Group]) -> list[Quantity]:
    """What a table of these groups has columns for: SUMMARY, whose accuracy gives way to what the task is judged by."""
    beside = {NATS: [PERPLEXITY, ACCURACY], TASK_MEAN: [FIRST_TASK, LAST_TASK]}
    return [*judged_by(groups), *beside.get(headline(groups), []), *SUMMARY[1:]]


def judged_by(groups: Sequence[Group]) -> list[Quantity]:
    """What the task is judged by, and the same on the validation part where there is one."""
    held_out = validation(groups)
    return [headline(groups), *([held_out] if any(group.has(held_out.column) for group in groups) else [])]


def final_cells(group: Group, quantities: Sequence[Quantity]) -> list[Cell]:
    return [Cell.of(quantity, group.finals(quantity)) for quantity in quantities]


def count_text(group: Group) -> str:
    """How many runs are complete, and what became of the others."""
    return ", ".join([str(group.n), *(f"{count} {ending}" for ending, count in group.endings.items())])


CSV_HEADER = (
    *("experiment", "group", "method", "n", "not_complete", "seeds"),
    *("quantity", "scale", "centre", "spread", "ci95_low", "ci95_high"),
)
# What a reader of any table of results must be told.
TABLE_NOTE = (
    "Mean ± standard deviation over seeds; for κ, norms, perplexity and training loss the geometric mean ×÷ the factor "
    "of one standard deviation. n counts complete runs."
)


def summary_header(groups: Sequence[Group]) -> tuple[str, ...]:
    return ("group", "n", *(quantity.heading for quantity in shown_quantities(groups)))


def summary_rows(groups: Sequence[Group]) -> list[list[str]]:
    shown = shown_quantities(groups)
    return [[group.label, count_text(group), *(cell.text for cell in final_cells(group, shown))] for group in groups]


def summary_csv(experiments: Sequence[tuple[str, Sequence[Group]]]) -> str:
    """Tidy: one row per group and quantity, with centre, spread and Student's 95 % interval on the quantity's own
    scale (logarithmic for κ and gradient norms: geometric mean, and the spread as a factor)."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(CSV_HEADER)
    for experiment, groups in experiments:
        shown = shown_quantities(groups)
        for group in groups:
            seeds = " ".join(value_text(run.seed) for run in group.complete)
            for cell in final_cells(group, shown):
                if cell.values:
                    numbers = _numbers(cell)
                    row = [experiment, group.label, group.method, len(cell.values), len(group.partial), seeds]
                    writer.writerow([*row, cell.quantity.column, *numbers])
    return buffer.getvalue()


def _numbers(cell: Cell) -> list[str]:
    # The CSV keeps the logged units: a fraction, not per cent.
    values = [value / cell.quantity.factor for value in cell.values]
    log = cell.quantity.log
    numbers = [centre(values, log), spread(values, log), *t_interval(values, log)]
    return ["log" if log else "linear", *("" if math.isnan(x) else f"{x:.8g}" for x in numbers)]
