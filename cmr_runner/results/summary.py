"""Final figures over seeds: one row a group, as text, Markdown and CSV."""

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass

from cmr_runner.results.grouping import Group
from cmr_runner.results.numerals import plus_minus
from cmr_runner.results.quantities import SUMMARY, Quantity
from cmr_runner.results.reading import value_text
from cmr_runner.results.statistics import centre, mean, standard_deviation, t_interval


@dataclass(frozen=True)
class Cell:
    """A quantity's final value over the complete runs of a group."""

    quantity: Quantity
    values: tuple[float, ...]

    @property
    def text(self) -> str:
        """`mean ± standard deviation`, the mean alone for one seed, and a dash where there is nothing."""
        if not self.values:
            return "–"
        digits = 4 if self.quantity.factor == 100.0 else 3
        return plus_minus(mean(self.values), standard_deviation(self.values), digits)


def final_cells(group: Group) -> list[Cell]:
    return [Cell(quantity, tuple(group.final(quantity))) for quantity in SUMMARY]


def count_text(group: Group) -> str:
    """How many runs are complete, and what became of the others."""
    return ", ".join([str(group.n), *(f"{count} {ending}" for ending, count in group.endings.items())])


CSV_HEADER = (
    *("experiment", "group", "method", "n", "not_complete", "seeds"),
    *("quantity", "mean", "std", "scale", "centre", "ci95_low", "ci95_high"),
)
HEADER = ("group", "n", *(quantity.heading for quantity in SUMMARY))


def summary_rows(groups: Sequence[Group]) -> list[list[str]]:
    return [[group.label, count_text(group), *(cell.text for cell in final_cells(group))] for group in groups]


def summary_csv(experiments: Sequence[tuple[str, Sequence[Group]]]) -> str:
    """Tidy: one row a group and quantity, with the arithmetic mean ± std, and the centre and Student's 95 % interval
    on the quantity's own scale (logarithmic for κ and gradient norms)."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(CSV_HEADER)
    for experiment, groups in experiments:
        for group in groups:
            seeds = " ".join(value_text(run.seed) for run in group.complete)
            for cell in final_cells(group):
                if cell.values:
                    numbers = _numbers(cell)
                    row = [experiment, group.label, group.method, len(cell.values), len(group.partial), seeds]
                    writer.writerow([*row, cell.quantity.column, *numbers])
    return buffer.getvalue()


def _numbers(cell: Cell) -> list[str]:
    # The CSV keeps the logged units: a fraction, not per cent.
    values = [value / cell.quantity.factor for value in cell.values]
    log = cell.quantity.log
    figures = [mean(values), standard_deviation(values), centre(values, log), *t_interval(values, log)]
    average, spread, middle, low, high = ("" if math.isnan(x) else f"{x:.8g}" for x in figures)
    return [average, spread, "log" if log else "linear", middle, low, high]
