"""A quantity over epochs: one line per group, a band over its seeds, and runs that did not finish, marked."""

import textwrap
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cmr_runner.figures.style import PAGE, PANEL_HEIGHT, epoch_axis, legend_above, log_axis, name_y, new_figure
from cmr_runner.results.grouping import Group, merit
from cmr_runner.results.methods import PALE, looks
from cmr_runner.results.quantities import SINGULAR, Quantity
from cmr_runner.results.reading import Run
from cmr_runner.results.seed_curves import seed_matrix
from cmr_runner.results.statistics import LEAST_SEEDS, t_band

MOST_LINES = 8  # distinguishable on one axis; of more, a few are highlighted over grey
END_MARKS = {"diverged": "x"}
UNFINISHED = ">"


def draw_curves(axes: Axes, groups: Sequence[Group], quantity: Quantity) -> None:
    """Draw the quantity of each group on the axes."""
    chosen, muted = over_grey(groups)
    for group in muted:
        draw_muted(axes, group, quantity, f"{len(muted)} others" if group is muted[0] else None)
    for group in chosen:
        draw_group(axes, group, quantity)
    epoch_axis(axes)
    name_y(axes, quantity.axis_label)
    if _drawn(axes):
        if quantity.log:
            end_at_singular(axes, quantity)
            log_axis(axes)
    else:
        axes.text(0.5, 0.5, f"{quantity.column}\nis not logged", transform=axes.transAxes, ha="center", va="center")


def end_at_singular(axes: Axes, quantity: Quantity) -> None:
    """End an axis of κ where its numbers end to mean anything, or the others would be a flat line."""
    if quantity.is_kappa and axes.dataLim.y1 > SINGULAR:
        axes.set_ylim(min(axes.dataLim.minposy, 1.0) / 2, SINGULAR)


def highlighted(groups: Sequence[Group], most: int = MOST_LINES) -> list[Group]:
    """All groups where an axis can tell them apart; else vanilla, CMR and the best of the others."""
    if len(groups) <= most:
        return list(groups)
    first = [next(g for g in groups if g.method == method) for method in ("none", "cmr") if _has(groups, method)]
    rest = sorted((group for group in groups if group not in first), key=merit, reverse=True)
    chosen = [*first, *rest[: most - 1 - len(first)]]
    return [group for group in groups if group in chosen]


def over_grey(groups: Sequence[Group]) -> tuple[list[Group], list[Group]]:
    """The highlighted groups, coloured as if they were alone, and the others, which stand behind them in grey."""
    shown = highlighted(groups)
    if len(shown) == len(groups):
        return shown, []
    muted = [group for group in groups if group not in shown]
    faces = looks([group.method for group in shown])
    return [replace(group, look=face) for group, face in zip(shown, faces, strict=True)], muted


def curve_row(groups: Sequence[Group], quantities: Sequence[Quantity]) -> tuple[Figure, list[Axes]]:
    """A figure of one row, a panel per quantity, the legend above."""
    figure = new_figure(PAGE, PANEL_HEIGHT)
    row = list(figure.subplots(1, len(quantities), squeeze=False)[0])
    for axes, quantity in zip(row, quantities, strict=True):
        draw_curves(axes, groups, quantity)
    legend_above(figure, row[0])
    return figure, row


def small_multiples(groups: Sequence[Group], quantity: Quantity) -> Figure:
    """One panel per group, all others in grey behind it."""
    columns = 4 if len(groups) > 9 else 3
    rows = -(-len(groups) // columns)
    figure = new_figure(PAGE, 0.3 + 1.25 * rows)
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    for axes, group in zip(grid.flat, groups, strict=False):
        for other in groups:
            if other is not group:
                draw_muted(axes, other, quantity, None)
        draw_group(axes, group, quantity)
        axes.set_title(textwrap.fill(legend_label(group), 120 // columns), loc="left", fontsize=7, pad=2)
    if quantity.log:
        end_at_singular(grid[0, 0], quantity)
        log_axis(grid[0, 0])
    for axes in grid.flat[len(groups) :]:
        axes.set_visible(False)
    for axes in grid.flat[max(0, len(groups) - columns) : len(groups)]:
        epoch_axis(axes)
        axes.tick_params(labelbottom=True)
    figure.supylabel(quantity.axis_label, fontsize=8)
    return figure


def draw_group(axes: Axes, group: Group, quantity: Quantity) -> None:
    look = group.look
    style: dict[str, Any] = {"color": look.color, "linestyle": look.dash, "marker": look.marker}
    if group.complete:
        epochs, values = seed_matrix(group.complete, quantity)
        middle, low, high = t_band(values, quantity.log)
        every = max(1, len(epochs) // 10)
        axes.plot(epochs, middle, label=legend_label(group), markevery=every, **style)
        if group.n >= LEAST_SEEDS:
            band = quantity.within_bounds(np.array([low, high]))
            axes.fill_between(epochs, *band, color=look.color, alpha=0.2, linewidth=0)
        elif group.n > 1:
            axes.plot(epochs, values.T, color=look.color, linestyle=look.dash, linewidth=0.6, alpha=0.7)
    for run in group.partial:
        label = None if group.complete or run is not group.partial[0] else legend_label(group)
        draw_partial(axes, run, quantity, look.color, look.dash, label)


def draw_muted(axes: Axes, group: Group, quantity: Quantity, label: str | None) -> None:
    """A group's mean behind the others, in grey."""
    if runs := group.complete or group.partial:
        epochs, values = seed_matrix(runs, quantity)
        axes.plot(epochs, t_band(values, quantity.log)[0], color=PALE, linewidth=0.8, zorder=1, label=label)


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
    parts = [count_label(group.n), *(f"{count} {ending}" for ending, count in group.endings.items())]
    return f"{group.label} ({', '.join(parts)})"


def count_label(n: int) -> str:
    return f"n\u00a0=\u00a0{n}"  # which a wrapped title must not part


def curve_note(groups: Sequence[Group], *quantities: Quantity) -> str:
    """What a caption must say of the curves, and nothing that does not apply."""
    said = []
    counts = {group.n for group in groups}
    if max(counts, default=0) > 1:
        log = any(quantity.log for quantity in quantities)
        said.append(f"Lines: mean over seeds{' (geometric on log scales)' if log else ''}.")
    if max(counts, default=0) >= LEAST_SEEDS:
        said.append("Bands: Student's 95 % interval of the mean.")
    if 2 in counts:
        said.append("Thin lines: the two seeds.")
    if counts <= {0, 1} and 1 in counts:
        said.append("One seed each, no interval.")
    if any(quantity.is_kappa and _singular(groups, quantity) for quantity in quantities):
        said.append("The axis of κ ends at 10¹⁶, beyond which a matrix is singular in float64.")
    endings = {ending for group in groups for ending in group.endings}
    if "diverged" in endings:
        said.append("×: diverged.")
    if endings - {"diverged"}:
        said.append(f"Thin line with ▶: {' or '.join(sorted(endings - {'diverged'}))}, not in the mean.")
    return " ".join(said)


def _singular(groups: Sequence[Group], quantity: Quantity) -> bool:
    return any((quantity.values(run) > SINGULAR).any() for group in groups for run in group.runs)


def _has(groups: Sequence[Group], method: str) -> bool:
    return any(group.method == method for group in groups)


def _drawn(axes: Axes) -> bool:
    return any(np.isfinite(np.asarray(line.get_ydata(), dtype=float)).any() for line in axes.lines)
