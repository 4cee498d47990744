"""The spectra of one or several models, from σ_min to σ_max of every layer."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

LABELS = 60  # at most so many names beside the bars


def layer_bars(tables: Mapping[str, pd.DataFrame]) -> Figure:
    """A panel per table of `cmr_runner.analyze`, under its title, on one axis of singular values."""
    heights = [0.9 + 0.22 * min(len(table), LABELS) for table in tables.values()]
    figure = Figure(figsize=(8.0, sum(heights)), layout="constrained")
    axes = figure.subplots(len(tables), 1, squeeze=False, height_ratios=heights, sharex=True)[:, 0]
    for ax, (title, table) in zip(axes, tables.items(), strict=True):
        draw_bars(ax, table)
        ax.set_title(title, fontsize=9, loc="left")
    axes[-1].set_xlabel("singular values, σ_min to σ_max; number: κ")
    return figure


def draw_bars(ax: Axes, table: pd.DataFrame) -> None:
    """One bar per layer, with κ beside it where there is room."""
    low, high = table["sigma_min"], table["sigma_max"]
    positive = low[low > 0]
    # On a logarithmic axis σ_min = 0 has no place: such a bar runs out of the others' range to the left.
    floor = 0.1 * float(positive.min()) if len(positive) else 1e-12
    position = range(len(table))
    ax.hlines(position, low.where(low > 0, floor), high, lw=max(1.0, min(5.0, 200 / max(1, len(table)))))
    every = math.ceil(len(table) / LABELS) or 1
    for y in position if every == 1 else ():
        ax.annotate(f" {table['kappa'].iloc[y]:.4g}", (high.iloc[y], y), va="center", fontsize=8)
    ax.set_yticks(position[::every], table["layer"].iloc[::every], fontsize=8)
    ax.set_ylim(len(table) - 0.4, -0.6)
    ax.set_xscale("log")
    ax.margins(x=0.12)
    ax.spines[["top", "right"]].set_visible(False)
