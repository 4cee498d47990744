"""Final accuracy against κ, one point per run: whether the two go together."""

from collections.abc import Iterator

from cmr_runner.figures.curves import highlighted, legend_label
from cmr_runner.figures.style import PAGE, PANEL_HEIGHT, Drawing, legend_above, log_axis, new_figure
from cmr_runner.results.grouping import Setting
from cmr_runner.results.methods import PALE
from cmr_runner.results.quantities import ACCURACY, KAPPA
from cmr_runner.results.statistics import centre


def tradeoff_figures(setting: Setting) -> Iterator[Drawing]:
    groups = [group for group in setting.groups if group.final(ACCURACY) and group.final(KAPPA)]
    if not groups:
        return
    figure = new_figure(PAGE, 1.4 * PANEL_HEIGHT)
    axes = figure.subplots()
    shown = highlighted(groups)
    muted = [group for group in groups if group not in shown]
    for group in [*muted, *shown]:
        color = PALE if group in muted else group.look.color
        pairs = [(float(KAPPA.values(run)[-1]), float(ACCURACY.values(run)[-1])) for run in group.complete]
        kappa, accuracy = zip(*pairs, strict=True)
        label = None if group in muted[1:] else f"{len(muted)} others" if group in muted else legend_label(group)
        axes.plot(kappa, accuracy, group.look.marker, color=color, markersize=4, alpha=0.75, label=label)
        middle = centre(group.final(KAPPA), KAPPA.log), centre(group.final(ACCURACY), ACCURACY.log)
        axes.plot(*middle, "+", color=color, markersize=9, markeredgewidth=1.5)
    log_axis(axes, "x")
    axes.set_xlabel(f"final {KAPPA.axis_label}")
    axes.set_ylabel(f"final {ACCURACY.label}")
    legend_above(figure, axes)
    yield Drawing("tradeoff", figure, "One point per complete run. +: mean over seeds, geometric for κ.")
