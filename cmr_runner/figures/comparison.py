"""Ablations and rivals side by side: final accuracy and κ of every group of an experiment, seeds shown."""

from collections.abc import Iterator, Sequence

from matplotlib.axes import Axes

from cmr_runner.figures.style import PAGE, Drawing, finish, log_axis, new_figure, stem_of
from cmr_runner.results.grouping import Group, experiments, settings
from cmr_runner.results.methods import Look
from cmr_runner.results.quantities import ACCURACY, KAPPA, Quantity
from cmr_runner.results.reading import Run
from cmr_runner.results.statistics import centre, t_interval

MOST_ROWS = 40


def comparison_figures(runs: Sequence[Run]) -> Iterator[Drawing]:
    """Of an experiment all groups, since what varies in it was chosen; of single runs only comparable ones."""
    chosen = [run for run in runs if run.in_experiment]
    single = [run for run in runs if not run.in_experiment]
    for experiment, groups in experiments(chosen):
        if len(groups) > 1:
            yield comparison_figure(experiment, groups)
    for setting in settings(single):
        if len(setting.groups) > 1:
            yield comparison_figure(setting.experiment, setting.groups, setting.distinction)


def comparison_figure(experiment: str, groups: Sequence[Group], distinction: str = "") -> Drawing:
    ranked = sorted(groups, key=_accuracy, reverse=True)
    shown = ranked[:MOST_ROWS]
    faces = {group.method: group.look for group in reversed(groups)}  # one look a method: rows are told by their labels
    figure = new_figure(PAGE, 0.75 + 0.17 * len(shown))
    panels = figure.subplots(1, 2, sharey=True)
    for axes, quantity in zip(panels, (ACCURACY, KAPPA), strict=True):
        for place, group in enumerate(shown):
            draw_row(axes, place, group, quantity, faces[group.method])
        if quantity.log:
            log_axis(axes, "x")
        axes.set_xlabel(f"final {quantity.axis_label}")
        _draw_reference(axes, groups, quantity)
    panels[0].set_yticks(range(len(shown)), [_row_label(group) for group in shown])
    panels[0].set_ylim(len(shown) - 0.5, -0.5)
    note = f"{experiment}, best accuracy first. Small: seeds. Large: mean (geometric for κ)."
    if any(group.n > 2 for group in shown):
        note += " Lines: Student's 95 % interval."
    if any(group.method == "none" for group in groups):
        note += " Dashed: best vanilla."
    if len(shown) < len(ranked):
        note += f" The first {len(shown)} of {len(ranked)} groups."
    finish(figure, note)
    return Drawing(experiment, stem_of("comparison", distinction), figure, note)


def draw_row(axes: Axes, place: int, group: Group, quantity: Quantity, look: Look) -> None:
    values = group.final(quantity)
    color = look.color
    if not values:
        axes.text(0.02, place, "no complete run", transform=axes.get_yaxis_transform(), va="center", fontsize=7)
        return
    if len(values) > 2:  # with two seeds the interval is wider than any axis
        low, high = t_interval(values, quantity.log)
        axes.plot([low, high], [place, place], color=color, linewidth=1.2)
    axes.plot(values, [place] * len(values), ".", color=color, alpha=0.6, markersize=4)
    axes.plot(centre(values, quantity.log), place, marker=look.marker, color=color, markersize=5.5)


def _draw_reference(axes: Axes, groups: Sequence[Group], quantity: Quantity) -> None:
    vanilla = [group for group in groups if group.method == "none" and group.final(quantity)]
    if vanilla:
        best = max(vanilla, key=_accuracy)
        axes.axvline(centre(best.final(quantity), quantity.log), color=best.look.color, linestyle="--", linewidth=0.8)


def _row_label(group: Group) -> str:
    lost = "".join(f", {count} {ending}" for ending, count in group.endings.items())
    return f"{group.label} (n = {group.n}{lost})"


def _accuracy(group: Group) -> float:
    values = group.final(ACCURACY)
    return centre(values, False) if values else -1.0
