"""Layer × epoch: where in the network, and when, κ grows."""

import textwrap
from collections.abc import Iterator

import numpy as np

from cmr_runner.figures.curves import count_label, highlighted
from cmr_runner.figures.heatmap import color_scale, draw_matrix
from cmr_runner.figures.style import COLUMN, PAGE, Drawing, log_axis, new_figure
from cmr_runner.results.grouping import Setting
from cmr_runner.results.layer_columns import layer_matrix, layer_names, short_name, shown_runs

MOST_MAPS = 16


def layer_maps(setting: Setting) -> Iterator[Drawing]:
    """A map per group, on one scale, so that any two can be compared."""
    logged = [group for group in setting.groups if layer_names([group])]
    groups = highlighted(logged, MOST_MAPS)
    if not groups:
        return
    names = layer_names(groups)
    maps = [layer_matrix(group, names, "kappa") for group in groups]
    scale = color_scale(np.concatenate([matrix.ravel() for _, matrix in maps]), log=True)
    columns = min(len(maps), 3 if len(maps) <= 9 else 4)
    rows = -(-len(maps) // columns)
    height = 0.75 + 0.125 * max(8, len(names))
    figure = new_figure(COLUMN if len(maps) == 1 else PAGE, rows * height)
    grid = figure.subplots(rows, columns, squeeze=False, sharey=True)
    for axes, group, (epochs, matrix) in zip(grid.flat, groups, maps, strict=False):
        image = draw_matrix(axes, matrix, scale)
        title = f"{group.label} ({count_label(len(shown_runs(group)))})"
        axes.set_title(textwrap.fill(title, 90 // columns if len(maps) > 1 else 60), loc="left", fontsize=7)
        step = max(1, -(-len(epochs) // 7))
        axes.set_xticks(range(0, len(epochs), step), [f"{epoch:g}" for epoch in epochs[::step]])
        axes.set_xlabel("epoch")
    for axes in grid[:, 0]:
        axes.set_yticks(range(len(names)), map(short_name, names))
        axes.set_ylabel("layer, input at the top")
    for axes in grid.flat[len(maps) :]:
        axes.set_visible(False)
    bar = figure.colorbar(image, ax=grid, label="κ(W) (log)", shrink=0.9 if rows == 1 else 0.6)
    log_axis(bar.ax)
    note = "Geometric mean of κ over seeds; one colour scale for all."
    if len(groups) < len(logged):
        note += f" {len(groups)} of {len(logged)} groups."
    yield Drawing("layers", figure, note)
