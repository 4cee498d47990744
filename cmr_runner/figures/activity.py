"""The spectral gradient over time: how often cap and clip act, and how large it is beside the task's."""

from collections.abc import Iterator, Sequence

from cmr_runner.figures.curves import MOST_LINES, curve_note, curve_row, draw_curves
from cmr_runner.figures.style import PAGE, PANEL_HEIGHT, Drawing, Omission, finish, legend_above, new_figure, stem_of
from cmr_runner.results.grouping import Group, comparable_sets, settings
from cmr_runner.results.methods import GREY
from cmr_runner.results.quantities import CAP_ACTIVE, CLIP_ACTIVE, SPECTRAL_RATIO, Quantity
from cmr_runner.results.reading import Run

PANELS = (CAP_ACTIVE, SPECTRAL_RATIO, CLIP_ACTIVE)


def activity_figures(runs: Sequence[Run]) -> Iterator[Drawing | Omission]:
    """For every setting, the groups whose regulariser is capped."""
    for setting in comparable_sets(runs):
        groups = [group for group in setting.groups if _capped(group)]
        if len(groups) > MOST_LINES:
            yield Omission(setting.title, len(groups), MOST_LINES)
        if not 0 < len(groups) <= MOST_LINES:
            continue
        figure, row = curve_row(groups, PANELS)
        for axes, quantity in zip(row, PANELS, strict=True):
            if quantity is SPECTRAL_RATIO:
                for cap in _caps(groups):
                    axes.axhline(cap, color=GREY, linestyle=":", linewidth=1.2)
            axes.set_ylim(0, max(1.04 * axes.get_ylim()[1], quantity.factor / 100))
        note = f"{setting.title}. {curve_note(groups, *PANELS)} Dotted: the cap ρ_spec."
        finish(figure, note)
        yield Drawing(setting.experiment, stem_of("activity", setting.distinction), figure, note)


def _capped(group: Group) -> bool:
    capped = group.field("regularizer.rho_spec") is not None and group.field("regularizer.mixing") != "uncapped"
    return capped and group.has(CAP_ACTIVE.column)


def _caps(groups: Sequence[Group]) -> list[float]:
    caps = {group.field("regularizer.rho_spec") for group in groups}
    return sorted(cap for cap in caps if isinstance(cap, int | float))


def moment_weight_figures(runs: Sequence[Run]) -> Iterator[Drawing]:
    """The learned weight of each moment over epochs, a panel a group."""
    for setting in settings([run for run in runs if any(key.startswith("weight_") for key in run.metrics.data)]):
        for group in setting.groups:
            columns = sorted(key for key in group.runs[0].metrics.data if key.startswith("weight_"))
            figure = new_figure(PAGE, PANEL_HEIGHT)
            row = figure.subplots(1, len(columns), squeeze=False, sharey=True)[0]
            for axes, column in zip(row, columns, strict=True):
                order = column.removeprefix("weight_")
                draw_curves(axes, [group], Quantity(column, f"weight of $s_{{{order}}}$"))
            legend_above(figure, row[0])
            note = f"{setting.title}. {curve_note([group])}"
            finish(figure, note)
            stem = "moment_weights" if len(setting.groups) == 1 else f"moment_weights-{group.label}"
            yield Drawing(setting.experiment, stem_of(stem, setting.distinction), figure, note)
