"""Test accuracy, or of text the loss, against wall-clock time and steps: what a method costs beside what it reaches."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from cmr_runner.figures.curves import curve_note, legend_label, over_grey
from cmr_runner.figures.style import PAGE, PANEL_HEIGHT, Drawing, legend_above, log_axis, name_y, new_figure
from cmr_runner.results.grouping import Group, Setting, headline
from cmr_runner.results.methods import PALE
from cmr_runner.results.quantities import Quantity
from cmr_runner.results.seed_curves import seed_matrix
from cmr_runner.results.statistics import LEAST_SEEDS, t_band


def time_figures(setting: Setting) -> Iterator[Drawing]:
    judged = headline(setting.groups)
    groups = [group for group in setting.groups if group.complete and group.has(judged.column, "seconds", "step")]
    if not groups:
        return
    figure = new_figure(PAGE, PANEL_HEIGHT + 0.3)
    left, right = figure.subplots(1, 2, sharey=True)
    shown, muted = over_grey(groups)
    for axes, column in ((left, "seconds"), (right, "step")):
        for group in muted:
            _draw(axes, group, column, judged, f"{len(muted)} others" if group is muted[0] else None, muted=True)
        for group in shown:
            _draw(axes, group, column, judged, legend_label(group))
    left.set_xlabel("seconds of training")
    right.set_xlabel("optimiser steps")
    name_y(left, judged.axis_label)
    if judged.log:
        log_axis(left)
    legend_above(figure, left)
    machines = {str(run.provenance.get("cpu")) for group in groups for run in group.runs}
    note = f"{curve_note(groups, judged)} Seconds: summed over epochs, mean over seeds."
    if len(machines) > 1:
        note += " The runs were made on different CPUs: their seconds are not comparable."
    yield Drawing("time", figure, note)


def _draw(axes: Axes, group: Group, column: str, quantity: Quantity, label: str | None, muted: bool = False) -> None:
    _, values = seed_matrix(group.complete, quantity)
    elapsed = [_elapsed(run.metrics[column], column)[: values.shape[1]] for run in group.complete]
    x = np.mean(elapsed, axis=0)
    middle, low, high = t_band(values, quantity.log)
    look = group.look
    style: dict[str, Any] = {"color": PALE, "linewidth": 0.8, "zorder": 1}
    if not muted:
        style = {"color": look.color, "linestyle": look.dash, "marker": look.marker}
    axes.plot(x, middle, label=label, markevery=max(1, len(x) // 10), **style)
    if not muted and group.n >= LEAST_SEEDS:
        axes.fill_between(x, *quantity.within_bounds(np.array([low, high])), color=look.color, alpha=0.15, linewidth=0)
    elif not muted and group.n > 1:
        for seconds, one in zip(elapsed, values, strict=True):
            axes.plot(seconds, one, color=look.color, linestyle=look.dash, linewidth=0.6, alpha=0.7)


def _elapsed(column: np.ndarray, name: str) -> np.ndarray:
    # Row 0 stands before training: its seconds are those of the first evaluation.
    return np.cumsum(np.nan_to_num(column)) - np.nan_to_num(column[:1]) if name == "seconds" else column
