"""Ablations and baselines side by side: final accuracy and κ of every group of an experiment, seeds shown."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes

from cmr_runner.figures.style import PAGE, Drawing, first_of, log_axis, new_figure
from cmr_runner.results.grouping import Group, Setting, headline, merit
from cmr_runner.results.layer_columns import heads_note
from cmr_runner.results.methods import Look
from cmr_runner.results.quantities import KAPPA, NATS, Quantity
from cmr_runner.results.statistics import LEAST_SEEDS, centre, t_interval

MOST_ROWS = 40


def comparison_figures(setting: Setting) -> Iterator[Drawing]:
    groups = setting.groups
    judged = headline(groups)
    ranked = sorted(groups, key=merit, reverse=True)
    shown = ranked[:MOST_ROWS]
    faces = {group.method: group.look for group in reversed(groups)}  # one look per method: labels distinguish the rows
    figure = new_figure(PAGE, 0.75 + 0.17 * len(shown))
    panels = figure.subplots(1, 2, sharey=True)
    for axes, quantity in zip(panels, (judged, KAPPA), strict=True):
        for place, group in enumerate(shown):
            draw_row(axes, place, group, quantity, faces[group.method])
        if quantity.log:
            log_axis(axes, "x")
        axes.set_xlabel(f"final {quantity.axis_label}")
        _draw_reference(axes, groups, quantity, faces)
    panels[0].set_yticks(range(len(shown)), [_row_label(group) for group in shown])
    panels[0].set_ylim(len(shown) - 0.5, -0.5)
    best = "Least loss" if judged is NATS else "Best accuracy"
    note = f"{best} first. Small: seeds. Large: mean (geometric for κ).{heads_note(groups)}"
    if any(group.n >= LEAST_SEEDS for group in shown):
        note += " Lines: Student's 95 % interval."
    if any(group.method == "none" for group in groups):
        note += " Dashed: best vanilla."
    yield Drawing("comparison", figure, note + first_of(len(shown), len(ranked)))


def draw_row(axes: Axes, place: int, group: Group, quantity: Quantity, look: Look) -> None:
    values = group.final(quantity)
    color = look.color
    if not values:
        axes.text(0.02, place, "no complete run", transform=axes.get_yaxis_transform(), va="center", fontsize=7)
        return
    if len(values) >= LEAST_SEEDS:
        low, high = quantity.within_bounds(np.array(t_interval(values, quantity.log)))
        axes.plot([low, high], [place, place], color=color, linewidth=1.2)
    axes.plot(values, [place] * len(values), ".", color=color, alpha=0.6, markersize=4)
    axes.plot(centre(values, quantity.log), place, marker=look.marker, color=color, markersize=5.5)


def _draw_reference(axes: Axes, groups: Sequence[Group], quantity: Quantity, faces: Mapping[str, Look]) -> None:
    vanilla = [group for group in groups if group.method == "none" and group.final(quantity)]
    if vanilla:
        best = max(vanilla, key=merit)
        middle = centre(best.final(quantity), quantity.log)
        axes.axvline(middle, color=faces["none"].color, linestyle="--", linewidth=0.8)


def _row_label(group: Group) -> str:
    lost = "".join(f", {count} {ending}" for ending, count in group.endings.items())
    return f"{group.label} (n = {group.n}{lost})"
