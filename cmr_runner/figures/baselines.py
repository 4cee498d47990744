"""The paper's appendix: final accuracy of five methods, and the median and P90 of κ(G) over epochs."""

from collections.abc import Iterator

from matplotlib.axes import Axes

from cmr_runner.figures.curves import curve_note, draw_curves
from cmr_runner.figures.style import Drawing, first_of, legend_above, new_figure
from cmr_runner.results.grouping import Group, Setting
from cmr_runner.results.quantities import ACCURACY, KAPPA_GRAM_MEDIAN, KAPPA_GRAM_P90
from cmr_runner.results.statistics import mean, spread

MOST_BARS = 20
HATCHES = {"none": "", "l2": "//", "spectral_norm": "..", "cmr": "", "spectral_norm_cmr": "\\\\"}


def baseline_figures(setting: Setting) -> Iterator[Drawing]:
    yield accuracy_bars(setting)
    for stem, quantity in (("kappa_gram_median", KAPPA_GRAM_MEDIAN), ("kappa_gram_p90", KAPPA_GRAM_P90)):
        figure = new_figure()
        axes = figure.subplots()
        draw_curves(axes, setting.groups, quantity)
        legend_above(figure, axes)
        yield Drawing(stem, figure, f"κ(G) = κ(W)² over layers. {curve_note(setting.groups, quantity)}")


def accuracy_bars(setting: Setting) -> Drawing:
    figure = new_figure()
    axes = figure.subplots()
    groups = setting.groups[:MOST_BARS]
    for place, group in enumerate(groups):
        _draw_bar(axes, place, group)
    crowded = len(groups) > 6
    axes.set_xticks(
        range(len(groups)),
        [f"{group.label}\nn = {group.n}" for group in groups],
        rotation=60 if crowded else 0,
        ha="right" if crowded else "center",
    )
    axes.grid(axis="x", visible=False)
    axes.set_ylim(0, 116)
    axes.set_yticks(range(0, 101, 20))
    axes.set_ylabel("final test accuracy (%)")
    several = any(group.n > 1 for group in groups)
    note = "Bars: mean over seeds, ± standard deviation. Dots: single seeds." if several else "One seed each."
    if any(group.partial for group in groups):
        note += " Runs that did not finish are not in the bars."
    return Drawing("accuracy_bars", figure, note + first_of(len(groups), len(setting.groups)))


def _draw_bar(axes: Axes, place: int, group: Group) -> None:
    values = group.final(ACCURACY)
    if not values:
        axes.text(place, 3, "no complete\nrun", ha="center", va="bottom", fontsize=7, rotation=90)
        return
    height, deviation = mean(values), spread(values, log=False)
    hatch = HATCHES.get(group.method, "xx")
    axes.bar(place, height, width=0.66, color=group.look.color, hatch=hatch, edgecolor="white", linewidth=0)
    axes.plot([place] * len(values), values, ".", color="black", markersize=2.5)
    label = f"{height:.1f}" if len(values) < 2 else f"{height:.1f}\n± {deviation:.1f}"
    axes.text(place, max(values) + 2.5, label, ha="center", va="bottom", fontsize=7, linespacing=0.95)
