"""The paper's main figure: accuracy, gradient norm, κ(W) and moments over epochs, together and each panel alone."""

from collections.abc import Iterator, Sequence

from matplotlib.axes import Axes

from cmr_runner.figures.curves import MOST_LINES, curve_note, draw_curves
from cmr_runner.figures.style import PAGE, PANEL_HEIGHT, Drawing, Omission, finish, legend_above, new_figure, stem_of
from cmr_runner.paper.settings import stress_settings
from cmr_runner.results.grouping import Group, Setting, comparable_sets
from cmr_runner.results.quantities import ACCURACY, GRAD_NORM, KAPPA, MAX_MOMENT, MEAN_MOMENT, Quantity
from cmr_runner.results.reading import Run
from cmr_runner.results.seed_curves import seed_matrix

PANELS: tuple[tuple[str, Quantity], ...] = (
    ("a", ACCURACY),
    ("b", GRAD_NORM),
    ("c", KAPPA),
    ("d", MEAN_MOMENT),
)
MOMENT_LABEL = r"max $|s_k|$, $k \geq 3$"
MOMENT_NOTE = "(d): mean over layers; thin dotted: the largest layer."


def main_figure(runs: Sequence[Run]) -> Iterator[Drawing]:
    """The κ-stress figure, vanilla against CMR, for every setting that has both."""
    for setting in stress_settings(runs):
        groups = setting.of("none", "cmr")[:MOST_LINES]
        yield four_panels(setting, groups, "main")
        for letter, quantity in PANELS:
            yield single_panel(setting, groups, letter, quantity)


def training_curves(runs: Sequence[Run]) -> Iterator[Drawing | Omission]:
    """The same four panels for every other set of comparable groups."""
    stressed = {id(run) for s in stress_settings(runs) for group in s.groups for run in group.runs}
    for setting in comparable_sets([run for run in runs if id(run) not in stressed]):
        count = len(setting.groups)
        if count <= MOST_LINES:
            yield four_panels(setting, setting.groups, "curves")
        else:
            yield Omission(setting.title, count, MOST_LINES)


def four_panels(setting: Setting, groups: Sequence[Group], stem: str) -> Drawing:
    figure = new_figure(PAGE, 2 * PANEL_HEIGHT)
    grid = figure.subplots(2, 2)
    for axes, (letter, quantity) in zip(grid.flat, PANELS, strict=True):
        draw_panel(axes, groups, quantity)
        axes.set_title(f"({letter})", loc="left")
    legend_above(figure, grid[0, 0])
    note = f"{setting.title}. {curve_note(groups, *(q for _, q in PANELS))} {MOMENT_NOTE}"
    finish(figure, note)
    return Drawing(setting.experiment, stem_of(stem, setting.distinction), figure, note)


def single_panel(setting: Setting, groups: Sequence[Group], letter: str, quantity: Quantity) -> Drawing:
    figure = new_figure()
    axes = figure.subplots()
    draw_panel(axes, groups, quantity)
    legend_above(figure, axes)
    note = curve_note(groups, quantity)
    if quantity is MEAN_MOMENT:
        note = f"{note} {MOMENT_NOTE.removeprefix('(d): ').capitalize()}"
    finish(figure, note)
    return Drawing(setting.experiment, stem_of(f"main_{letter}_{quantity.column}", setting.distinction), figure, note)


def draw_panel(axes: Axes, groups: Sequence[Group], quantity: Quantity) -> None:
    draw_curves(axes, groups, quantity)
    if quantity is MEAN_MOMENT:
        _draw_largest_moment(axes, groups)


def _draw_largest_moment(axes: Axes, groups: Sequence[Group]) -> None:
    # The paper's panel (d) does not say how it joins the layers: both readings are shown.
    for group in groups:
        if group.complete and group.has(MAX_MOMENT.column):
            epochs, values = seed_matrix(group.complete, MAX_MOMENT)
            axes.plot(epochs, values.mean(axis=0), color=group.look.color, linestyle=":", linewidth=0.9)
    axes.set_ylabel(MOMENT_LABEL)
    axes.set_ylim(0, 1.05)
