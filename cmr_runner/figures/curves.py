"""A quantity over epochs: one line a group, a band over its seeds, and runs that did not finish drawn and marked."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cmr_runner.figures.style import PAGE, PANEL_HEIGHT, epoch_axis, legend_above, log_axis, new_figure
from cmr_runner.results.grouping import Group
from cmr_runner.results.quantities import Quantity
from cmr_runner.results.reading import Run
from cmr_runner.results.seed_curves import seed_matrix
from cmr_runner.results.statistics import bootstrap_band

MOST_LINES = 10
FEW_SEEDS = 5  # a percentile bootstrap of five normal values covers 84 %, of two 51 %
END_MARKS = {"diverged": "x"}
UNFINISHED = ">"


def draw_curves(axes: Axes, groups: Sequence[Group], quantity: Quantity) -> None:
    """Draw the quantity of each group on the axes."""
    for group in groups:
        draw_group(axes, group, quantity)
    epoch_axis(axes)
    axes.set_ylabel(quantity.axis_label)
    if quantity.log:
        log_axis(axes)
    if not _drawn(axes):
        axes.text(0.5, 0.5, f"{quantity.column}\nis not logged", transform=axes.transAxes, ha="center", va="center")


def curve_row(groups: Sequence[Group], quantities: Sequence[Quantity]) -> tuple[Figure, list[Axes]]:
    """A figure of one row, a panel a quantity, the legend above."""
    figure = new_figure(PAGE, PANEL_HEIGHT)
    row = list(figure.subplots(1, len(quantities), squeeze=False)[0])
    for axes, quantity in zip(row, quantities, strict=True):
        draw_curves(axes, groups, quantity)
    legend_above(figure, row[0])
    return figure, row


def draw_group(axes: Axes, group: Group, quantity: Quantity) -> None:
    look = group.look
    style: dict[str, Any] = {"color": look.color, "linestyle": look.dash, "marker": look.marker}
    if group.complete:
        epochs, values = seed_matrix(group.complete, quantity)
        centre, low, high = bootstrap_band(values, quantity.log)
        every = max(1, len(epochs) // 10)
        axes.plot(epochs, centre, label=legend_label(group), markevery=every, **style)
        if group.n > 1:
            axes.fill_between(epochs, low, high, color=look.color, alpha=0.2, linewidth=0)
    for run in group.partial:
        label = None if group.complete or run is not group.partial[0] else legend_label(group)
        draw_partial(axes, run, quantity, look.color, look.dash, label)


def draw_partial(axes: Axes, run: Run, quantity: Quantity, color: str, dash: str, label: str | None) -> None:
    """A run that is not complete: thin, as far as it goes, with a mark at its end."""
    epochs, values = run.metrics["epoch"], quantity.values(run)
    axes.plot(epochs, values, color=color, linestyle=dash, linewidth=0.7, label=label)
    shown = np.flatnonzero(np.isfinite(values) & ((values > 0) | (not quantity.log)))
    if len(shown):
        end = shown[-1]
        mark = END_MARKS.get(run.ending, UNFINISHED)
        axes.plot(epochs[end], values[end], marker=mark, markersize=6, markeredgewidth=1.4, color=color, linestyle="")


def legend_label(group: Group) -> str:
    parts = [f"n = {group.n}", *(f"{count} {ending}" for ending, count in group.endings.items())]
    return f"{group.label} ({', '.join(parts)})"


def curve_note(groups: Sequence[Group], *quantities: Quantity) -> str:
    """What a caption must say of the curves, and nothing that does not apply."""
    said = []
    if any(group.n > 1 for group in groups):
        log = any(quantity.log for quantity in quantities)
        said.append(f"Lines: mean over seeds{' (geometric on log scales)' if log else ''}.")
        few = min(group.n for group in groups if group.n > 1) <= FEW_SEEDS
        caution = ", too narrow for so few seeds" if few else ""
        said.append(f"Bands: bootstrap 95 % interval of the mean{caution}.")
    elif any(group.n for group in groups):
        said.append("One seed each, no interval.")
    endings = {ending for group in groups for ending in group.endings}
    if "diverged" in endings:
        said.append("×: diverged.")
    if endings - {"diverged"}:
        said.append(f"Thin line with ▶: {' or '.join(sorted(endings - {'diverged'}))}, not in the mean.")
    return " ".join(said)


def _drawn(axes: Axes) -> bool:
    return any(np.isfinite(np.asarray(line.get_ydata(), dtype=float)).any() for line in axes.lines)
