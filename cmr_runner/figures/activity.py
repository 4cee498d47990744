"""The spectral gradient over time: how often cap and clip act, and how large it is beside the task's."""

from collections.abc import Iterator, Sequence

from cmr_runner.figures.curves import curve_note, curve_row
from cmr_runner.figures.style import Drawing
from cmr_runner.results.grouping import Group, Setting
from cmr_runner.results.methods import GREY
from cmr_runner.results.quantities import CAP_ACTIVE, CLIP_ACTIVE, SPECTRAL_RATIO

PANELS = (CAP_ACTIVE, SPECTRAL_RATIO, CLIP_ACTIVE)


def activity_figures(setting: Setting) -> Iterator[Drawing]:
    """The groups whose regulariser is capped."""
    groups = [group for group in setting.groups if _capped(group)]
    if not groups:
        return
    figure, row = curve_row(groups, PANELS)
    for axes, quantity in zip(row, PANELS, strict=True):
        if quantity is SPECTRAL_RATIO:
            for cap in _caps(groups):
                axes.axhline(cap, color=GREY, linestyle=":", linewidth=1.2)
        axes.set_ylim(0, max(1.04 * axes.get_ylim()[1], quantity.factor / 100))
    yield Drawing("activity", figure, f"{curve_note(groups, *PANELS)} Dotted: the cap ρ_spec.")


def _capped(group: Group) -> bool:
    capped = group.field("regularizer.rho_spec") is not None and group.field("regularizer.mixing") != "uncapped"
    return capped and group.has(CAP_ACTIVE.column)


def _caps(groups: Sequence[Group]) -> list[float]:
    caps = {group.field("regularizer.rho_spec") for group in groups}
    return sorted(cap for cap in caps if isinstance(cap, int | float))
