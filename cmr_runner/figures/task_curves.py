"""A stream of tasks: whether a network still learns the last of them as well as the first."""

from collections.abc import Iterator, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from cmr_runner.figures.curves import curve_note, draw_curves, over_grey
from cmr_runner.figures.style import PAGE, PANEL_HEIGHT, Drawing, first_of, legend_above, name_y, new_figure
from cmr_runner.results.by_task import by_task
from cmr_runner.results.grouping import Group, Setting, merit
from cmr_runner.results.methods import PALE
from cmr_runner.results.quantities import ACCURACY, FIRST_TASK, LAST_TASK
from cmr_runner.results.statistics import mean
from cmr_runner.results.tasks import TASK

MOST_ROWS = 20
ROW_HEIGHT = 0.17


def task_figures(setting: Setting) -> Iterator[Drawing]:
    groups = [group for group in setting.groups if group.has(TASK)]
    ranked = sorted((group for group in groups if group.n), key=merit, reverse=True)
    shown = ranked[:MOST_ROWS]
    figure = new_figure(PAGE, max(PANEL_HEIGHT + 0.3, 0.6 + ROW_HEIGHT * len(shown)))
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    draw_curves(left, [by_task(group) for group in groups], ACCURACY)
    left.set_xlabel("task")
    left.set_xlim(0.5, left.dataLim.x1 + 0.5)
    left.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
    name_y(left, "test accuracy at the end of the task (%)")
    chosen, muted = over_grey(groups)
    colors = {group.label: group.look.color for group in chosen} | {group.label: PALE for group in muted}
    draw_first_and_last(right, shown, colors)
    legend_above(figure, left)
    note = (
        f"Left: {_lowered(curve_note(groups, ACCURACY))} Right: ○ after the first task, ● after the last; small: seeds."
    )
    yield Drawing("tasks", figure, f"{note} Best mean over tasks first.{first_of(len(shown), len(ranked))}")


def draw_first_and_last(axes: Axes, groups: Sequence[Group], colors: Mapping[str, str]) -> None:
    """A row per group: from what it reached on the first task to what it reached on the last."""
    for place, group in enumerate(groups):
        color = colors[group.label]
        ends = [group.final(quantity) for quantity in (FIRST_TASK, LAST_TASK)]
        axes.plot([mean(values) for values in ends], [place, place], color=color, linewidth=1)
        for values, face in zip(ends, ("white", color), strict=True):
            rows = [place] * len(values)
            axes.plot(values, rows, "o", color=color, markerfacecolor=face, markersize=2.5, markeredgewidth=0.6)
            axes.plot(mean(values), place, "o", color=color, markerfacecolor=face, markersize=5.5)
    axes.set_yticks(range(len(groups)), [group.label for group in groups])
    axes.set_ylim(max(len(groups), 1) - 0.5, -0.5)
    axes.set_xlabel("test accuracy (%)")


def _lowered(text: str) -> str:
    return text[:1].lower() + text[1:]
