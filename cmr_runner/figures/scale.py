"""The scale of the weights over time, beside what the network achieves: which of the two moves first."""

from collections.abc import Iterator, Sequence

from cmr_runner.figures.curves import MOST_LINES, curve_note, curve_row
from cmr_runner.figures.style import Drawing, Omission, finish, stem_of
from cmr_runner.results.grouping import comparable_sets
from cmr_runner.results.layer_columns import layer_names
from cmr_runner.results.quantities import ACCURACY, SIGMA_MAX, SIGMA_MIN
from cmr_runner.results.reading import Run

PANELS = (SIGMA_MIN, SIGMA_MAX, ACCURACY)


def scale_figures(runs: Sequence[Run]) -> Iterator[Drawing | Omission]:
    for setting in comparable_sets(runs):
        groups = [group for group in setting.groups if layer_names([group])]
        if len(groups) > MOST_LINES:
            yield Omission(setting.title, len(groups), MOST_LINES)
        elif groups:
            figure, _ = curve_row(groups, PANELS)
            note = f"{setting.title}. Medians are over layers. {curve_note(groups, *PANELS)}"
            finish(figure, note)
            yield Drawing(setting.experiment, stem_of("scale", setting.distinction), figure, note)
