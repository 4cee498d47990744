"""Groups on a grid of λ and ρ_spec: which group stands in which cell."""

from collections.abc import Sequence
from dataclasses import dataclass

from cmr_runner.results.grouping import GRID_KEYS, Group, natural
from cmr_runner.results.quantities import ACCURACY, KAPPA
from cmr_runner.results.reading import value_text

PAPER_CELL = ("0.02", "0.5")
# What a colour scale spans at least, so that noise does not look like signal: points of accuracy, a factor of κ.
LEAST_RANGE = {ACCURACY: 20.0, KAPPA: 10.0}


@dataclass(frozen=True)
class Grid:
    """λ from top to bottom, ρ_spec from left to right, both as text; a cell without runs is None."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[tuple[Group | None, ...], ...]

    @property
    def paper(self) -> tuple[int, int] | None:
        """Row and column of the paper's values, if they are there."""
        row, column = PAPER_CELL
        if row not in self.rows or column not in self.columns:
            return None
        place = self.rows.index(row), self.columns.index(column)
        return place if self.cells[place[0]][place[1]] else None


def grid_of(groups: Sequence[Group]) -> Grid:
    places = {tuple(value_text(group.field(key)) for key in GRID_KEYS): group for group in groups}
    rows, columns = (tuple(sorted(set(values), key=natural)) for values in zip(*places, strict=True))
    return Grid(rows, columns, tuple(tuple(places.get((row, column)) for column in columns) for row in rows))
