"""The table of a model's spectra: a DataFrame that prints the most important columns first."""

from __future__ import annotations

import pandas as pd


class SpectralTable(pd.DataFrame):
    """One row per layer, with its figures as columns. Selections and copies of it are plain DataFrames.

    frozen: the layers that do not train now. left_out: a sentence on the weights that have no row.
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
