"""The learned weight of each moment over epochs."""

from collections.abc import Iterator

from cmr_runner.figures.curves import curve_note, draw_curves
from cmr_runner.figures.style import PAGE, PANEL_HEIGHT, Drawing, legend_above, new_figure
from cmr_runner.results.grouping import Group, Setting
from cmr_runner.results.quantities import Quantity


def moment_weight_figures(setting: Setting) -> Iterator[Drawing]:
    """One picture per group that learns its weights, one panel per moment."""
    learned = [(group, columns) for group in setting.groups if (columns := _weights(group))]
    for group, columns in learned:
        figure = new_figure(PAGE, PANEL_HEIGHT)
        row = figure.subplots(1, len(columns), squeeze=False, sharey=True)[0]
        for axes, column in zip(row, columns, strict=True):
            draw_curves(axes, [group], Quantity(column, f"weight of $s_{{{column.removeprefix('weight_')}}}$"))
        legend_above(figure, row[0])
        stem = "moment_weights" if len(learned) == 1 else f"moment_weights-{group.label}"
        yield Drawing(stem, figure, curve_note([group]))


def _weights(group: Group) -> list[str]:
    return sorted(key for key in group.runs[0].metrics.data if key.startswith("weight_"))
