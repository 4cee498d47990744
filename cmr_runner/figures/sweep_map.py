"""λ × ρ_spec: accuracy and κ over a grid of penalty weights and caps."""

from collections.abc import Iterator, Sequence

import numpy as np
from matplotlib.patches import Rectangle

from cmr_runner.figures.heatmap import color_scale, draw_matrix, write_cells
from cmr_runner.figures.style import PAGE, Drawing, log_axis, new_figure
from cmr_runner.results.grouping import Group, Setting, natural, symbol
from cmr_runner.results.quantities import ACCURACY, KAPPA
from cmr_runner.results.reading import value_text
from cmr_runner.results.statistics import centre

ROW, COLUMN = "regularizer.lam", "regularizer.rho_spec"
PAPER_CELL = ("0.02", "0.5")
# What a colour scale spans at least, so that noise does not look like signal: points of accuracy, a factor of κ.
LEAST_RANGE = {ACCURACY: 20.0, KAPPA: 10.0}


def sweep_maps(setting: Setting) -> Iterator[Drawing]:
    groups = setting.groups
    rows, columns = _values(groups, ROW), _values(groups, COLUMN)
    framed = any((value_text(g.field(ROW)), value_text(g.field(COLUMN))) == PAPER_CELL for g in groups)
    figure = new_figure(PAGE, 0.9 + 0.3 * len(rows))
    panels = figure.subplots(1, 2)
    for axes, quantity, form in zip(panels, (ACCURACY, KAPPA), (".1f", ".3g"), strict=True):
        matrix = np.full((len(rows), len(columns)), np.nan)
        for group in groups:
            place = rows.index(value_text(group.field(ROW))), columns.index(value_text(group.field(COLUMN)))
            matrix[place] = centre(group.final(quantity), quantity.log)
        image = draw_matrix(axes, matrix, color_scale(matrix, quantity.log, LEAST_RANGE[quantity]))
        write_cells(axes, image, matrix, form)
        axes.set_xticks(range(len(columns)), columns)
        axes.set_yticks(range(len(rows)), rows)
        axes.set_xlabel(symbol(COLUMN))
        axes.set_ylabel(symbol(ROW))
        axes.set_title(f"final {quantity.axis_label}", loc="left")
        bar = figure.colorbar(image, ax=axes, shrink=0.9)
        if quantity.log:
            log_axis(bar.ax)
        if framed:
            corner = columns.index(PAPER_CELL[1]) - 0.5, rows.index(PAPER_CELL[0]) - 0.5
            axes.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor="#D55E00", linewidth=2))
    yield Drawing("sweep", figure, _note(groups, framed))


def _note(groups: Sequence[Group], framed: bool) -> str:
    counts = sorted({group.n for group in groups})
    span = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    cells = "One seed per cell" if counts == [1] else f"A cell is the mean of {span} seeds, geometric for κ"
    frame = " Frame: the paper's λ and ρ_spec." if framed else ""
    grey = " Grey: no complete run." if counts[0] == 0 else ""
    return f"{cells}.{frame}{grey}"


def _values(groups: Sequence[Group], key: str) -> list[str]:
    return sorted({value_text(group.field(key)) for group in groups}, key=natural)
