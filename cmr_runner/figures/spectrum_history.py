"""The distribution of the singular values over training: heat maps of two methods side by side, and an animation."""

from collections.abc import Iterator, Sequence

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from cmr_runner.figures.curves import highlighted
from cmr_runner.figures.heatmap import COLORS
from cmr_runner.figures.style import PAGE, PANEL_HEIGHT, Drawing, legend_above, log_axis, new_figure
from cmr_runner.results.grouping import Group, Setting
from cmr_runner.results.layer_columns import layer_names, layer_points, shown_runs, spectrum_history

LEAST_EPOCHS = 3  # before and after are shown by `spectra`
MOST_GROUPS = 4


def history_figures(setting: Setting) -> Iterator[Drawing]:
    """For vanilla beside CMR, or for the few groups there are: all layers together, and the middle layer alone."""
    logged = [group for group in setting.groups if _epochs(group) >= LEAST_EPOCHS]
    groups = highlighted(logged, MOST_GROUPS)
    if not groups:
        return
    yield Drawing(
        "spectrum_history", history_map(groups), "Colour: the share of the singular values of all layers and seeds."
    )
    names = layer_names(groups, "spectra")
    layer = names[len(names) // 2]
    frames = tuple(_frames(groups, layer))
    yield Drawing("spectrum_animation", None, f"Quantiles of the singular values of {layer}, epoch by epoch.", frames)


def history_map(groups: Sequence[Group]) -> Figure:
    """Epochs to the right, σ upwards, the share of singular values near each σ as colour."""
    histories = [spectrum_history(group) for group in groups]
    sigma = np.concatenate([points[:, 2] for points in histories])
    edges = np.geomspace(sigma.min(), sigma.max() * 1.0001, 41)
    figure = new_figure(PAGE, PANEL_HEIGHT + 0.2)
    row = figure.subplots(1, len(groups), squeeze=False, sharey=True)[0]
    for axes, group, points in zip(row, groups, histories, strict=True):
        epochs = np.unique(points[:, 0])
        counts = np.stack([np.histogram(points[points[:, 0] == epoch, 2], edges)[0] for epoch in epochs], axis=1)
        share = 100 * counts / counts.sum(axis=0)
        sides = np.append(epochs, 2 * epochs[-1] - epochs[-2] if len(epochs) > 1 else epochs[-1] + 1) - 0.5
        mesh = axes.pcolormesh(sides, edges, np.ma.masked_equal(share, 0), cmap=COLORS, norm=LogNorm(0.3, 100))
        axes.set_title(f"{group.label} (n = {len(shown_runs(group))})", loc="left", fontsize=7)
        axes.set_xlabel("epoch")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=7))
        axes.grid(visible=False)
    log_axis(row[0])
    row[0].set_ylabel("singular value σ (log)")
    figure.colorbar(mesh, ax=list(row), label="% of singular values")
    return figure


def _frames(groups: Sequence[Group], layer: str) -> Iterator[Figure]:
    from cmr_runner.figures.style import finish

    histories = [layer_points(group).get(layer, np.zeros((0, 3))) for group in groups]
    everything = np.concatenate([points[:, 2] for points in histories])
    for epoch in np.unique(np.concatenate([points[:, 0] for points in histories])):
        figure = new_figure(PAGE, 1.3 * PANEL_HEIGHT)
        axes = figure.subplots()
        for group, points in zip(groups, histories, strict=True):
            now = points[points[:, 0] == epoch]
            percentiles = np.unique(now[:, 1])
            sigma = [np.exp(np.log(now[now[:, 1] == p, 2]).mean()) for p in percentiles]
            axes.plot(percentiles, sigma, color=group.look.color, linestyle=group.look.dash, label=group.label)
        axes.set_ylim(everything.min() / 1.2, everything.max() * 1.2)
        axes.set_xlim(0, 100)
        log_axis(axes)
        axes.set_xlabel("percentile of the layer's singular values")
        axes.set_ylabel("singular value σ (log)")
        legend_above(figure, axes)
        finish(figure, f"{layer}, epoch {epoch:g}")
        yield figure


def _epochs(group: Group) -> int:
    return max((len(np.unique(run.spectra["epoch"])) for run in shown_runs(group)), default=0)
