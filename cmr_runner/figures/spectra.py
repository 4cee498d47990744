"""The singular values of every layer before and after training, as quantile curves."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from cmr_runner.figures.curves import highlighted
from cmr_runner.figures.style import PAGE, Drawing, legend_above, log_axis, new_figure
from cmr_runner.results.grouping import Setting
from cmr_runner.results.layer_columns import layer_names, layer_spectra, short_name, shown_runs
from cmr_runner.results.methods import GREY

MOST_GROUPS = 6
MOST_LAYERS = 25
COLUMNS = 5
NOTHING: tuple[tuple, tuple] = ((), ())
HALFWAY = 50.0  # percentile
LIKENESS = 1.2  # a factor: the median singular value of a layer moves by far less from seed to seed

Spectra = dict[str, tuple[np.ndarray, np.ndarray]]


def spectrum_figures(setting: Setting) -> Iterator[Drawing]:
    logged = [group for group in setting.groups if layer_names([group], "spectra")]
    groups = highlighted(logged, MOST_GROUPS)
    if not groups:
        return
    names = layer_names(groups, "spectra")
    shown = names[:: -(-len(names) // MOST_LAYERS)]
    columns = min(COLUMNS, len(shown))
    rows = -(-len(shown) // columns)
    figure = new_figure(PAGE, 0.4 + 1.05 * rows)
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    before = [layer_spectra(group, "before") for group in groups]
    alike = all(_alike(before[0], other) for other in before[1:])
    after = [layer_spectra(group, "after") for group in groups]
    for axes, name in zip(grid.flat, shown, strict=False):
        if alike:
            first = next((spectra[name] for spectra in before if name in spectra), NOTHING)
            axes.plot(*first, color=GREY, linewidth=2.2, alpha=0.6, label="before")
        for group, start, spectra in zip(groups, before, after, strict=True):
            if not alike:
                axes.plot(*start.get(name, NOTHING), color=group.look.color, linewidth=2.2, alpha=0.35)
            label = f"{group.label} after (n = {len(shown_runs(group))})"
            look = group.look
            style: dict[str, Any] = {"linestyle": look.dash, "marker": look.marker, "markersize": 2.8, "markevery": 10}
            axes.plot(*spectra.get(name, NOTHING), color=look.color, label=label, **style)
        axes.set_title(short_name(name), loc="left", fontsize=7, pad=2)
        axes.set_xticks([0, 50, 100])
    log_axis(grid[0, 0])
    for axes in grid.flat:
        axes.minorticks_off()  # too small to read here, and slow to lay out
    for axes in grid.flat[len(shown) :]:
        axes.set_visible(False)
    # The last panel above an empty place carries the x labels that sharex took away.
    for axes in grid.flat[max(0, len(shown) - columns) : len(shown)]:
        axes.tick_params(labelbottom=True)
    figure.supylabel("singular value σ (log)", fontsize=8)
    legend_above(figure, grid[0, 0])
    note = "x: percentile of the layer's singular values; geometric mean over seeds."
    if not alike:
        note += " Broad and pale: before training."
    if len(shown) < len(names):
        note += f" {len(shown)} of {len(names)} layers."
    if len(groups) < len(logged):
        note += f" {len(groups)} of {len(logged)} groups."
    yield Drawing("spectra", figure, note)


def _alike(one: Spectra, other: Spectra) -> bool:
    """Whether two groups start from the same spectra, but for what other seeds change."""
    return all(
        np.interp(HALFWAY, *one[name]) < LIKENESS * np.interp(HALFWAY, *other[name])
        and np.interp(HALFWAY, *other[name]) < LIKENESS * np.interp(HALFWAY, *one[name])
        for name in one.keys() & other.keys()
    )
