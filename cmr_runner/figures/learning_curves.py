"""What a network learns beside what it shows on data it has not seen: training loss, validation and test."""

from collections.abc import Iterator

from cmr_runner.figures.curves import curve_note, curve_row
from cmr_runner.figures.style import Drawing
from cmr_runner.results.grouping import Setting, headline, validation
from cmr_runner.results.quantities import TRAIN_LOSS


def learning_figures(setting: Setting) -> Iterator[Drawing]:
    held_out = validation(setting.groups)
    if groups := [group for group in setting.groups if group.has(held_out.column)]:
        panels = (TRAIN_LOSS, held_out, headline(groups))
        figure, _ = curve_row(groups, panels)
        yield Drawing("learning", figure, curve_note(groups, *panels))
