"""`--by`: how the results depend on one field, such as a learning rate."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from matplotlib.axes import Axes

from cmr_runner.figures.curves import MOST_LINES
from cmr_runner.figures.style import PAGE, PANEL_HEIGHT, Drawing, finish, legend_above, log_axis, new_figure
from cmr_runner.figures.training_curves import four_panels
from cmr_runner.results.grouping import Setting, natural, series_along, symbol
from cmr_runner.results.methods import Look, looks
from cmr_runner.results.quantities import ACCURACY, KAPPA, Quantity
from cmr_runner.results.reading import Run, value_text
from cmr_runner.results.statistics import centre


def by_figures(runs: Sequence[Run], key: str) -> Iterator[Drawing]:
    """Final values against the field for each experiment, and the training curves of each series."""
    for _, found in groupby(series_along(runs, key), key=lambda series: series.experiment):
        several = list(found)
        yield dependence(several[:MOST_LINES], key)
        for series in several[:MOST_LINES]:
            if len(series.groups) <= MOST_LINES:
                yield four_panels(series, series.groups, f"curves_by_{key}")


def dependence(several: Sequence[Setting], key: str) -> Drawing:
    figure = new_figure(PAGE, PANEL_HEIGHT)
    row = figure.subplots(1, 2)
    values = sorted({value_text(g.field(key)) for s in several for g in s.groups}, key=natural)
    faces = looks([series.groups[0].method for series in several])
    for axes, quantity in zip(row, (ACCURACY, KAPPA), strict=True):
        for series, look in zip(several, faces, strict=True):
            draw_series(axes, series, key, values, quantity, look)
        axes.set_xticks(range(len(values)), values)
        axes.set_xlabel(symbol(key) if symbol(key) != key.split(".")[-1] else key)
        axes.set_ylabel(f"final {quantity.axis_label}")
        if quantity.log:
            log_axis(axes)
    legend_above(figure, row[0])
    note = (
        f"{several[0].experiment}. Lines: mean over seeds, geometric for κ. Dots: seeds. Steps of {key} evenly spaced."
    )
    finish(figure, note)
    return Drawing(several[0].experiment, f"by_{key}", figure, note)


def draw_series(axes: Axes, series: Setting, key: str, values: Sequence[str], quantity: Quantity, look: Look) -> None:
    places, centres = [], []
    for group in sorted(series.groups, key=lambda group: natural(group.field(key))):
        finals = group.final(quantity)
        place = values.index(value_text(group.field(key)))
        axes.plot([place] * len(finals), finals, ".", color=look.color, alpha=0.5, markersize=3)
        places.append(place)
        centres.append(centre(finals, quantity.log))
    axes.plot(places, centres, color=look.color, linestyle=look.dash, marker=look.marker, label=series.distinction)
