"""The paper's Section 4 beside its bounds: κ of the input-output Jacobian, and the gradient reaching each layer."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from matplotlib.axes import Axes

from cmr_runner.figures.curves import curve_note, draw_curves, highlighted
from cmr_runner.figures.style import (
    PAGE,
    PANEL_HEIGHT,
    Drawing,
    legend_above,
    log_axis,
    new_figure,
)
from cmr_runner.results.grouping import Group, Setting
from cmr_runner.results.layer_columns import layer_matrix, layer_names
from cmr_runner.results.methods import Look
from cmr_runner.results.numerals import number
from cmr_runner.results.quantities import JACOBIAN, JACOBIAN_BOUND

BEYOND = 1e3  # how far above what was measured an axis still follows a bound


def diagnostic_figures(setting: Setting) -> Iterator[Drawing]:
    groups = highlighted([group for group in setting.groups if group.has(JACOBIAN.column)])
    if not groups:
        return
    figure = new_figure(PAGE, PANEL_HEIGHT)
    left, right = figure.subplots(1, 2)
    draw_curves(left, groups, JACOBIAN)
    legend_above(figure, left)
    measured = _largest(left)
    draw_curves(left, [_as_bound(group) for group in groups], JACOBIAN_BOUND)
    left.set_ylabel("κ of the Jacobian (log)")
    cut = _clip(left, measured)
    draw_layer_gradients(right, groups)
    if any(np.isinf(JACOBIAN_BOUND.values(run)).any() for group in groups for run in group.runs):
        cut += " Where a dotted line stops, the bound is infinite."
    note = f"{curve_note(groups, JACOBIAN)} Right: after the last epoch. Dotted: the bounds of Section 4.{cut}"
    yield Drawing("diagnostics", figure, note)


def _clip(axes: Axes, measured: float) -> str:
    """End the axis where the bounds leave what was measured far behind, and say how far they go."""
    largest = _largest(axes)
    if not largest > BEYOND * measured:
        return ""
    axes.set_ylim(min(axes.dataLim.minposy, 1.0) / 3, BEYOND * measured)
    log_axis(axes)
    return f" The axis ends below the bounds, the largest of which is {number(largest, 2)}."


def _largest(axes: Axes) -> float:
    values = np.concatenate([np.asarray(line.get_ydata(), dtype=float).ravel() for line in axes.lines])
    finite = values[np.isfinite(values)]
    return float(finite.max()) if len(finite) else 1.0


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
