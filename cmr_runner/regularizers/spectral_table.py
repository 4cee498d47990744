"""The table of a model's spectra: a DataFrame that prints what one looks for first, and draws itself."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pandas as pd

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LABELS = 60  # at most so many names beside the drawing


class SpectralTable(pd.DataFrame):
    """One row per layer, with its figures as columns; what is made of it (a selection, a copy) is a plain DataFrame.

    frozen: the names of those rows that do not train now. left_out: a sentence on the weights that have no row.
    """

    _metadata = ["frozen", "left_out"]  # noqa: RUF012 (pandas' own protocol)

    def __init__(
        self, rows: list[dict[str, float | int | str]], columns: list[str], frozen: frozenset[str], left_out: str
    ) -> None:
        super().__init__(rows, columns=columns)  # type: ignore[call-arg]
        self.frozen = frozen
        self.left_out = left_out

    @property
    def _constructor(self) -> type[pd.DataFrame]:
        return pd.DataFrame

    def readable(self) -> pd.DataFrame:
        """κ, σ_max and σ_min first, and whether CMR would regularise the layer."""
        shape = [f"{rows} × {cols}" for rows, cols in zip(self["rows"], self["cols"], strict=True)]
        regularised = ["no: frozen" if name in self.frozen else "yes" for name in self["layer"]]
        first = {"layer": self["layer"], "κ": self["kappa"], "σ_max": self["sigma_max"], "σ_min": self["sigma_min"]}
        rest = self.drop(columns=["layer", "kappa", "sigma_max", "sigma_min", "rows", "cols"])
        return pd.DataFrame({**first, "shape": shape, "regularised": regularised, **rest})

    def __repr__(self) -> str:
        table = self.readable()
        rows = pd.get_option("display.max_rows")
        text = table.to_string(index=False, float_format=lambda value: f"{value:.4g}", max_rows=rows)
        return f"{text}\n{self.left_out}" if self.left_out else text

    __str__ = __repr__

    def _repr_html_(self) -> str:
        text = self.readable().to_html(index=False, float_format=lambda value: f"{value:.4g}")
        return f"{text}<p>{self.left_out}</p>" if self.left_out else text

    def plot(self, ax: Axes | None = None) -> Axes:  # type: ignore[override]
        """One bar per layer from σ_min to σ_max, grey where it is frozen; κ beside it where there is room."""
        if ax is None:
            import matplotlib.pyplot as plt

            _, ax = plt.subplots(figsize=self.figure_size)
        low, high = self["sigma_min"], self["sigma_max"]
        positive = low[low > 0]
        floor = 0.1 * float(positive.min()) if len(positive) else 1e-12
        colours = ["0.6" if name in self.frozen else "tab:blue" for name in self["layer"]]
        position = range(len(self))
        # On a logarithmic axis σ_min = 0 has no place: such a bar runs out of the picture to the left.
        shown = low.where(low > 0, floor)
        ax.hlines(position, shown, high, colors=colours, lw=max(1.0, min(5.0, 200 / max(1, len(self)))))
        every = math.ceil(len(self) / LABELS) or 1
        for y in position if every == 1 else ():
            kappa = f" {self['kappa'][y]:.4g}"
            ax.annotate(kappa, (high[y], y), va="center", fontsize=8)
        ax.set_yticks(position[::every], self["layer"][::every], fontsize=8)
        ax.set_ylim(len(self) - 0.4, -0.6)
        ax.set_xscale("log")
        ax.margins(x=0.12)
        ax.set_xlabel(f"singular values, σ_min to σ_max{'; number: κ' if every == 1 else ''}")
        ax.spines[["top", "right"]].set_visible(False)
        return ax

    @property
    def figure_size(self) -> tuple[float, float]:
        """Inches that keep the names apart."""
        return 8.0, 1.2 + 0.22 * min(len(self), LABELS)


def figure_of(tables: dict[str, SpectralTable]) -> Any:
    """A matplotlib Figure with a drawing of each table under its title, made without a display."""
    from matplotlib.figure import Figure

    heights = [table.figure_size[1] for table in tables.values()]
    figure = Figure(figsize=(8.0, sum(heights)), layout="constrained")
    axes = figure.subplots(len(tables), 1, squeeze=False, height_ratios=heights)[:, 0]
    for ax, (title, table) in zip(axes, tables.items(), strict=True):
        table.plot(ax).set_title(title, fontsize=9, loc="left")
    return figure
