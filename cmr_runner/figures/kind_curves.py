"""κ by kind of layer: which part of a network a method conditions, and which it leaves alone."""

from collections.abc import Iterator

from cmr_runner.figures.curves import curve_note, draw_curves
from cmr_runner.figures.style import PAGE, Drawing, legend_above, new_figure
from cmr_runner.results.grouping import Setting
from cmr_runner.results.layer_columns import heads_note
from cmr_runner.results.quantities import KAPPA, kind_quantities

MOST_COLUMNS = 3
ROW_HEIGHT = 1.7


def kind_figures(setting: Setting) -> Iterator[Drawing]:
    """A panel per kind, on one scale."""
    groups = setting.groups
    quantities = kind_quantities(setting.runs)
    if not quantities:
        return
    columns = 2 if len(quantities) in (2, 4) else MOST_COLUMNS
    rows = -(-len(quantities) // columns)
    figure = new_figure(PAGE, 0.3 + ROW_HEIGHT * rows)
    grid = figure.subplots(rows, columns, squeeze=False, sharey=True)
    for axes, quantity in zip(grid.flat, quantities, strict=False):
        draw_curves(axes, groups, quantity)
        axes.set_ylabel("")
        axes.set_title(quantity.kind, loc="left", fontsize=8)
    for axes in grid.flat[len(quantities) :]:
        axes.set_visible(False)
    for axes in grid[:, 0]:
        axes.set_ylabel(KAPPA.axis_label)
    legend_above(figure, grid[0, 0])
    note = f"κ(W): mean over the layers of a kind. {curve_note(groups, *quantities)}{heads_note(groups)}"
    yield Drawing("kinds", figure, note)
