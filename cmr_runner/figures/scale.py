"""The scale of the weights over time, beside what the network achieves: which of the two moves first."""

from collections.abc import Iterator

from cmr_runner.figures.curves import curve_note, curve_row
from cmr_runner.figures.style import Drawing
from cmr_runner.results.grouping import Setting, headline
from cmr_runner.results.layer_columns import layer_names
from cmr_runner.results.quantities import SIGMA_MAX, SIGMA_MIN


def scale_figures(setting: Setting) -> Iterator[Drawing]:
    if groups := [group for group in setting.groups if layer_names([group])]:
        panels = (SIGMA_MIN, SIGMA_MAX, headline(groups))
        figure, _ = curve_row(groups, panels)
        yield Drawing("scale", figure, f"Medians are over layers. {curve_note(groups, *panels)}")
