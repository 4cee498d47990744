"""How the results depend on one field, such as λ or a learning rate."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from matplotlib.axes import Axes

from cmr_runner.figures.curves import MOST_LINES
from cmr_runner.figures.style import PAGE, PANEL_HEIGHT, Drawing, first_of, legend_above, log_axis, name_y, new_figure
from cmr_runner.figures.training_curves import four_panels
from cmr_runner.results.grouping import Dependence, Setting, headline, is_number, natural, symbol
from cmr_runner.results.methods import Look, looks
from cmr_runner.results.quantities import KAPPA, Quantity
from cmr_runner.results.reading import value_text
from cmr_runner.results.statistics import LEAST_SEEDS, centre, t_interval

LOG_RANGE = 10.0  # largest ÷ smallest value from which a logarithmic axis spreads them better


def dependence_figures(dependence: Dependence) -> Iterator[Drawing]:
    """Final values against the field, a line per series."""
    series = dependence.series[:MOST_LINES]
    figure = new_figure(PAGE, PANEL_HEIGHT)
    row = figure.subplots(1, 2)
    places, kind = axis_places([value_text(g.field(dependence.key)) for g in dependence.groups])
    faces = looks([one.groups[0].method for one in series])
    for axes, quantity in zip(row, (headline(dependence.groups), KAPPA), strict=True):
        for one, look in zip(series, faces, strict=True):
            draw_series(axes, one, dependence.key, places, quantity, look)
        _set_places(axes, places, kind)
        axes.set_xlabel(symbol(dependence.key) if "." not in dependence.key else f"{symbol(dependence.key)} ({kind})")
        name_y(axes, f"final {quantity.axis_label}")
        if quantity.log:
            log_axis(axes)
    if len(series) > 1 or series[0].distinction:
        legend_above(figure, row[0])
    note = f"Over {dependence.key}. Lines: mean over seeds, geometric for κ. Dots: seeds."
    if any(group.n >= LEAST_SEEDS for one in series for group in one.groups):
        note += " Bands: Student's 95 % interval of the mean."
    yield Drawing("dependence", figure, note + first_of(len(series), len(dependence.series), "series"))


def by_figures(dependence: Dependence) -> Iterator[Drawing]:
    """`--by`: final values against the field, and the training curves of each series."""
    for drawing in dependence_figures(dependence):
        yield replace(drawing, stem="by")
    for series in dependence.series[:MOST_LINES]:
        if len(series.groups) <= MOST_LINES:
            yield four_panels(series.groups, f"curves_by-{series.distinction}" if series.distinction else "curves_by")


def axis_places(values: Sequence[str]) -> tuple[dict[str, float], str]:
    """Where each value stands on the x axis, and the kind of axis: log, linear, or evenly spaced for words and for a
    zero among powers."""
    distinct = sorted(set(values), key=natural)
    if not all(map(is_number, distinct)):
        return {value: float(i) for i, value in enumerate(distinct)}, "evenly spaced"
    numbers = {value: float(value) for value in distinct}
    positive = [number for number in numbers.values() if number > 0]
    if not positive or max(positive) / min(positive) < LOG_RANGE:
        return numbers, "linear"
    if len(positive) == len(numbers):
        return numbers, "log"
    return {value: float(i) for i, value in enumerate(distinct)}, "evenly spaced"


def _set_places(axes: Axes, places: dict[str, float], kind: str) -> None:
    if kind == "log":
        axes.set_xscale("log")
    axes.minorticks_off()
    axes.set_xticks(list(places.values()), list(places))
    if len(places) > 8:
        axes.tick_params(axis="x", labelrotation=60)


def draw_series(
    axes: Axes, series: Setting, key: str, places: dict[str, float], quantity: Quantity, look: Look
) -> None:
    groups = sorted(series.groups, key=lambda group: natural(group.field(key)))
    finals = [(places[value_text(group.field(key))], group.final(quantity)) for group in groups]
    finals = [(place, values) for place, values in finals if values]
    for place, values in finals:
        axes.plot([place] * len(values), values, ".", color=look.color, alpha=0.5, markersize=3)
    x = [place for place, _ in finals]
    middle = [centre(values, quantity.log) for _, values in finals]
    bounds = [t_interval(values, quantity.log) for _, values in finals]
    axes.plot(x, middle, color=look.color, linestyle=look.dash, marker=look.marker, label=series.distinction)
    band = quantity.within_bounds(np.reshape(bounds, (-1, 2)).T)
    axes.fill_between(x, *band, color=look.color, alpha=0.15, linewidth=0)
