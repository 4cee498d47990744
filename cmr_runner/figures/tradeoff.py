"""Final accuracy, or of text the loss, against κ, one point per run: whether the two go together."""

from collections.abc import Iterator

from cmr_runner.figures.curves import legend_label, over_grey
from cmr_runner.figures.style import PAGE, PANEL_HEIGHT, Drawing, legend_above, log_axis, name_y, new_figure
from cmr_runner.results.grouping import Setting, headline
from cmr_runner.results.layer_columns import heads_note
from cmr_runner.results.methods import PALE
from cmr_runner.results.quantities import KAPPA
from cmr_runner.results.statistics import centre


def tradeoff_figures(setting: Setting) -> Iterator[Drawing]:
    judged = headline(setting.groups)
    groups = [group for group in setting.groups if group.final(judged) and group.final(KAPPA)]
    if not groups:
        return
    figure = new_figure(PAGE, 1.4 * PANEL_HEIGHT)
    axes = figure.subplots()
    shown, muted = over_grey(groups)
    for group in [*muted, *shown]:
        color = PALE if group in muted else group.look.color
        pairs = [(float(KAPPA.values(run)[-1]), float(judged.values(run)[-1])) for run in group.complete]
        kappa, reached = zip(*pairs, strict=True)
        label = None if group in muted[1:] else f"{len(muted)} others" if group in muted else legend_label(group)
        axes.plot(kappa, reached, group.look.marker, color=color, markersize=4, alpha=0.75, label=label)
        middle = centre(group.final(KAPPA), KAPPA.log), centre(group.final(judged), judged.log)
        axes.plot(*middle, "+", color=color, markersize=9, markeredgewidth=1.5)
    log_axis(axes, "x")
    axes.set_xlabel(f"final {KAPPA.axis_label}")
    name_y(axes, f"final {judged.axis_label}")
    if judged.log:
        log_axis(axes)
    legend_above(figure, axes)
    note = f"One point per complete run. +: mean over seeds, geometric for κ.{heads_note(groups)}"
    yield Drawing("tradeoff", figure, note)
