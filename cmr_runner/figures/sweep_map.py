"""λ × ρ_spec: accuracy and κ over a grid of penalty weights and caps."""

from collections.abc import Iterator, Sequence

import numpy as np
from matplotlib.patches import Rectangle

from cmr_runner.figures.heatmap import color_scale, draw_matrix, write_cells
from cmr_runner.figures.style import PAGE, Drawing, log_axis, new_figure
from cmr_runner.results.grids import LEAST_RANGE, grid_of
from cmr_runner.results.grouping import GRID_KEYS, Group, Setting, symbol
from cmr_runner.results.quantities import ACCURACY, KAPPA
from cmr_runner.results.statistics import centre


def sweep_maps(setting: Setting) -> Iterator[Drawing]:
    grid = grid_of(setting.groups)
    figure = new_figure(PAGE, 0.9 + 0.3 * len(grid.rows))
    panels = figure.subplots(1, 2)
    for axes, quantity, form in zip(panels, (ACCURACY, KAPPA), (".1f", ".3g"), strict=True):
        finals = [[group.final(quantity) if group else [] for group in row] for row in grid.cells]
        matrix = np.array([[centre(values, quantity.log) for values in row] for row in finals])
        image = draw_matrix(axes, matrix, color_scale(matrix, quantity.log, LEAST_RANGE[quantity]))
        write_cells(axes, image, matrix, form)
        axes.set_xticks(range(len(grid.columns)), grid.columns)
        axes.set_yticks(range(len(grid.rows)), grid.rows)
        axes.set_ylabel(symbol(GRID_KEYS[0]))
        axes.set_xlabel(symbol(GRID_KEYS[1]))
        axes.set_title(f"final {quantity.axis_label}", loc="left")
        bar = figure.colorbar(image, ax=axes, shrink=0.9)
        if quantity.log:
            log_axis(bar.ax)
        if grid.paper:
            row, column = grid.paper
            axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, edgecolor="#D55E00", linewidth=2))
    yield Drawing("sweep", figure, _note(setting.groups, grid.paper is not None))


def _note(groups: Sequence[Group], framed: bool) -> str:
    counts = sorted({group.n for group in groups})
    span = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    cells = "One seed per cell" if counts == [1] else f"A cell is the mean of {span} seeds, geometric for κ"
    frame = " Frame: the paper's λ and ρ_spec." if framed else ""
    grey = " Grey: no complete run." if counts[0] == 0 else ""
    return f"{cells}.{frame}{grey}"
