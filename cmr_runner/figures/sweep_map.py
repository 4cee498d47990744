"""λ × ρ_spec: accuracy and κ over a grid of penalty weights and caps."""

from collections.abc import Iterator, Sequence

import numpy as np
from matplotlib.patches import Rectangle

from cmr_runner.figures.heatmap import color_scale, draw_matrix, write_cells
from cmr_runner.figures.style import PAGE, Drawing, finish, log_axis, new_figure, stem_of
from cmr_runner.results.grouping import Group, group_runs, natural, symbol
from cmr_runner.results.quantities import ACCURACY, KAPPA
from cmr_runner.results.reading import Run, value_text
from cmr_runner.results.statistics import centre

ROW, COLUMN = "regularizer.lam", "regularizer.rho_spec"
PAPER_CELL = ("0.02", "0.5")


def sweep_maps(runs: Sequence[Run]) -> Iterator[Drawing]:
    """A map for every set of groups that differ in λ and ρ_spec alone and cover at least 2 × 2 values."""
    swept: dict[tuple, list[Run]] = {}
    for run in runs:
        if ROW in run.recipe and COLUMN in run.recipe:
            rest = {key: value for key, value in run.recipe.items() if key not in (ROW, COLUMN)}
            swept.setdefault((run.experiment, *sorted(rest.items())), []).append(run)
    grids = [grid for grid in swept.values() if _spans(grid)]
    for grid in grids:
        alone = sum(other[0].experiment == grid[0].experiment for other in grids) == 1
        groups = group_runs(grid)
        yield sweep_map(groups, "" if alone else f"{groups[0].method} {groups[0].runs[0].hash}")


def sweep_map(groups: Sequence[Group], distinction: str) -> Drawing:
    rows, columns = _values(groups, ROW), _values(groups, COLUMN)
    figure = new_figure(PAGE, 0.9 + 0.3 * len(rows))
    panels = figure.subplots(1, 2)
    for axes, quantity, form in zip(panels, (ACCURACY, KAPPA), (".1f", ".3g"), strict=True):
        matrix = np.full((len(rows), len(columns)), np.nan)
        for group in groups:
            place = rows.index(value_text(group.field(ROW))), columns.index(value_text(group.field(COLUMN)))
            matrix[place] = centre(group.final(quantity), quantity.log)
        image = draw_matrix(axes, matrix, color_scale(matrix, quantity.log))
        write_cells(axes, image, matrix, form)
        axes.set_xticks(range(len(columns)), columns)
        axes.set_yticks(range(len(rows)), rows)
        axes.set_xlabel(symbol(COLUMN))
        axes.set_ylabel(symbol(ROW))
        axes.set_title(f"final {quantity.axis_label}", loc="left")
        bar = figure.colorbar(image, ax=axes, shrink=0.9)
        if quantity.log:
            log_axis(bar.ax)
        if PAPER_CELL[0] in rows and PAPER_CELL[1] in columns:
            corner = columns.index(PAPER_CELL[1]) - 0.5, rows.index(PAPER_CELL[0]) - 0.5
            axes.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor="#D55E00", linewidth=2))
    note = _note(groups)
    finish(figure, note)
    return Drawing(groups[0].experiment, stem_of("sweep", distinction), figure, note)


def _note(groups: Sequence[Group]) -> str:
    counts = sorted({group.n for group in groups})
    span = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    cells = "One seed a cell" if counts == [1] else f"A cell is the mean of {span} seeds, geometric for κ"
    note = f"{groups[0].experiment}. {cells}. Frame: the paper's λ and ρ_spec."
    return f"{note} Grey: no complete run." if counts[0] == 0 else note


def _spans(runs: Sequence[Run]) -> bool:
    return all(len({run.recipe[key] for run in runs}) > 1 for key in (ROW, COLUMN))


def _values(groups: Sequence[Group], key: str) -> list[str]:
    return sorted({value_text(group.field(key)) for group in groups}, key=natural)
