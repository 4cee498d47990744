"""The paper's Section 4 beside its bounds: κ of the input-output Jacobian, and the gradient reaching each layer."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from matplotlib.axes import Axes

from cmr_runner.figures.curves import MOST_LINES, curve_note, draw_curves
from cmr_runner.figures.style import (
    PAGE,
    PANEL_HEIGHT,
    Drawing,
    Omission,
    finish,
    legend_above,
    log_axis,
    new_figure,
    stem_of,
)
from cmr_runner.results.grouping import Group, comparable_sets
from cmr_runner.results.layer_columns import layer_matrix, layer_names
from cmr_runner.results.methods import Look
from cmr_runner.results.quantities import JACOBIAN, JACOBIAN_BOUND
from cmr_runner.results.reading import Run


def diagnostic_figures(runs: Sequence[Run]) -> Iterator[Drawing | Omission]:
    for setting in comparable_sets(runs):
        groups = [group for group in setting.groups if group.has(JACOBIAN.column)]
        if len(groups) > MOST_LINES:
            yield Omission(setting.title, len(groups), MOST_LINES)
        if not 0 < len(groups) <= MOST_LINES:
            continue
        figure = new_figure(PAGE, PANEL_HEIGHT)
        left, right = figure.subplots(1, 2)
        draw_curves(left, groups, JACOBIAN)
        legend_above(figure, left)
        draw_curves(left, [_as_bound(group) for group in groups], JACOBIAN_BOUND)
        left.set_ylabel("κ of the Jacobian (log)")
        draw_layer_gradients(right, groups)
        bounds = "Right: after the last epoch. Dotted: the bounds of Section 4."
        note = f"{setting.title}. {curve_note(groups, JACOBIAN)} {bounds}"
        finish(figure, note)
        yield Drawing(setting.experiment, stem_of("diagnostics", setting.distinction), figure, note)


def draw_layer_gradients(axes: Axes, groups: Sequence[Group]) -> None:
    """‖∂L/∂h‖ of each layer after the last epoch, and its bound."""
    names = layer_names(groups)
    for group in groups:
        look = group.look
        for column, style in (
            ("grad_h", {"linestyle": look.dash, "marker": look.marker}),
            ("grad_h_bound", {"linestyle": ":", "linewidth": 0.9}),
        ):
            epochs, matrix = layer_matrix(group, names, column)
            if len(epochs):
                axes.plot(range(1, len(names) + 1), matrix[:, -1], color=look.color, **style)
    log_axis(axes)
    axes.set_xlabel("layer")
    axes.set_ylabel("‖∂L/∂h‖ (log)")


def _as_bound(group: Group) -> Group:
    return replace(group, look=Look(group.look.color, "", ":"))
