"""Layer × epoch: where in the network, and when, κ grows."""

import textwrap
from collections.abc import Iterator, Sequence

import numpy as np

from cmr_runner.figures.heatmap import color_scale, draw_matrix
from cmr_runner.figures.style import COLUMN, PAGE, Drawing, Omission, finish, new_figure, stem_of
from cmr_runner.results.grouping import Setting, comparable_sets
from cmr_runner.results.layer_columns import layer_matrix, layer_names, short_name, shown_runs
from cmr_runner.results.reading import Run

MOST_MAPS = 9
MOST_NAMES = 20
TITLE_LINE = 30  # characters above one of three panels


def layer_maps(runs: Sequence[Run]) -> Iterator[Drawing | Omission]:
    for setting in comparable_sets(runs):
        if len(setting.groups) > MOST_MAPS:
            yield Omission(setting.title, len(setting.groups), MOST_MAPS)
        elif layer_names(setting.groups):
            yield layer_map(setting)


def layer_map(setting: Setting) -> Drawing:
    names = layer_names(setting.groups)
    groups = [group for group in setting.groups if layer_names([group])]
    maps = [layer_matrix(group, names, "kappa") for group in groups]
    scale = color_scale(np.concatenate([matrix.ravel() for _, matrix in maps]), log=True)
    columns = min(len(maps), 3)
    rows = -(-len(maps) // columns)
    height = 0.75 + 0.12 * max(8, min(len(names), MOST_NAMES))
    figure = new_figure(COLUMN if len(maps) == 1 else PAGE, rows * height)
    grid = figure.subplots(rows, columns, squeeze=False, sharey=True)
    for axes, group, (epochs, matrix) in zip(grid.flat, groups, maps, strict=False):
        image = draw_matrix(axes, matrix, scale)
        title = f"{group.label} (n = {len(shown_runs(group))})"
        axes.set_title(textwrap.fill(title, TITLE_LINE if len(maps) > 1 else 2 * TITLE_LINE), loc="left", fontsize=7)
        step = max(1, -(-len(epochs) // 7))
        axes.set_xticks(range(0, len(epochs), step), [f"{epoch:g}" for epoch in epochs[::step]])
        axes.set_xlabel("epoch")
    every = max(1, -(-len(names) // MOST_NAMES))
    for axes in grid[:, 0]:
        axes.set_yticks(range(0, len(names), every), map(short_name, names[::every]))
        axes.set_ylabel("layer, input at the top")
    for axes in grid.flat[len(maps) :]:
        axes.set_visible(False)
    figure.colorbar(image, ax=grid, label="κ(W) (log)", shrink=0.9 if rows == 1 else 0.6)
    note = f"{setting.title}. Geometric mean of κ over seeds."
    finish(figure, note)
    return Drawing(setting.experiment, stem_of("layers", setting.distinction), figure, note)
