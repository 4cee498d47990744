"""The paper's main figure: accuracy, gradient norm, κ(W) and moments over epochs, together and each panel alone."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from matplotlib.axes import Axes

from cmr_runner.figures.curves import MOST_LINES, curve_note, draw_curves, small_multiples
from cmr_runner.figures.style import PAGE, PANEL_HEIGHT, Drawing, first_of, legend_above, new_figure
from cmr_runner.results.grouping import Group, Setting, headline
from cmr_runner.results.quantities import ACCURACY, GRAD_NORM, KAPPA, MAX_MOMENT, MEAN_MOMENT, Quantity
from cmr_runner.results.seed_curves import seed_matrix

PANELS: tuple[tuple[str, Quantity], ...] = (
    ("a", ACCURACY),
    ("b", GRAD_NORM),
    ("c", KAPPA),
    ("d", MEAN_MOMENT),
)
MANY_LINES = 6  # beyond which a panel per group shows more than one panel of all
MOMENT_NOTE = f"Thin dotted: {MAX_MOMENT.label}."


def main_figure(setting: Setting) -> Iterator[Drawing]:
    """The κ-stress figure, vanilla against CMR."""
    found = setting.of("none", "cmr")
    groups = found[:MOST_LINES]
    drawings = [four_panels(groups, "main")]
    drawings += [single_panel(groups, f"main_{letter}_{quantity.column}", quantity) for letter, quantity in PANELS]
    for drawing in drawings:
        yield replace(drawing, note=drawing.note + first_of(len(groups), len(found)))


def training_curves(setting: Setting) -> Iterator[Drawing]:
    """The same four panels for other runs; of many groups, a panel each for accuracy and for κ."""
    groups = setting.groups
    if len(groups) <= MANY_LINES:
        yield four_panels(groups, "curves")
        return
    for quantity in (headline(groups), KAPPA):
        note = f"{quantity.axis_label}. Grey: the other groups. {curve_note(groups, quantity)}"
        yield Drawing(f"curves_{quantity.column}", small_multiples(groups, quantity), note)


def four_panels(groups: Sequence[Group], stem: str) -> Drawing:
    figure = new_figure(PAGE, 2 * PANEL_HEIGHT)
    grid = figure.subplots(2, 2)
    panels = [(letter, headline(groups) if quantity is ACCURACY else quantity) for letter, quantity in PANELS]
    for axes, (letter, quantity) in zip(grid.flat, panels, strict=True):
        draw_panel(axes, groups, quantity)
        axes.set_title(f"({letter})", loc="left")
    legend_above(figure, grid[0, 0])
    note = f"{curve_note(groups, *(q for _, q in panels))} (d), {MOMENT_NOTE[0].lower()}{MOMENT_NOTE[1:]}"
    return Drawing(stem, figure, note)


def single_panel(groups: Sequence[Group], stem: str, quantity: Quantity) -> Drawing:
    figure = new_figure()
    axes = figure.subplots()
    draw_panel(axes, groups, quantity)
    legend_above(figure, axes)
    note = curve_note(groups, quantity)
    return Drawing(stem, figure, f"{note} {MOMENT_NOTE}" if quantity is MEAN_MOMENT else note)


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
    axes.set_ylim(0, 1.05)
