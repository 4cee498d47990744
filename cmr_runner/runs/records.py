"""The CSV files of a run, kept as text so that a resumed run continues them byte for byte."""

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from cmr_runner.runs.columns import LAYERS, METRICS, SPECTRA

Row = Mapping[str, Any]


class Records:
    """The rows of `metrics.csv`, `layers.csv` and `spectra.csv` so far. A file's first row decides its columns."""

    def __init__(self, texts: Mapping[str, str] | None = None, *, every_spectrum: bool = False) -> None:
        self._texts = dict(texts or {})
        self._every_spectrum = every_spectrum

    @property
    def texts(self) -> dict[str, str]:
        """File name → content: what a checkpoint carries and what `Records(texts)` continues."""
        return dict(self._texts)

    def add_epoch(self, metrics: Row, layers: Sequence[Row], spectra: Sequence[Row]) -> None:
        self._append(METRICS, [metrics])
        self._append(LAYERS, layers)
        if not self._every_spectrum:
            # spectra.csv shows before and after: the rows of epoch 0 and of the newest epoch.
            start = [row for row in self.rows(SPECTRA) if row["epoch"] == "0"]
            self._texts.pop(SPECTRA, None)
            self._append(SPECTRA, start)
        self._append(SPECTRA, spectra)

    def rows(self, name: str) -> list[dict[str, str]]:
        return list(csv.DictReader(io.StringIO(self._texts.get(name, ""))))

    def last_metrics(self) -> dict[str, float | int | None] | None:
        rows = self.rows(METRICS)
        return {key: _number(cell) for key, cell in rows[-1].items()} if rows else None

    def _append(self, name: str, rows: Sequence[Row]) -> None:
        if not rows:
            return
        text = self._texts.get(name, "")
        columns = _header(text) or list(rows[0])
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        if not text:
            writer.writerow(columns)
        for row in rows:
            unknown = row.keys() - set(columns)
            if unknown:
                raise ValueError(f"{name}: columns {sorted(unknown)} are not among those of the first row")
            writer.writerow([_cell(row.get(column)) for column in columns])
        self._texts[name] = text + buffer.getvalue()


def _header(text: str) -> list[str]:
    return next(csv.reader(io.StringIO(text)), [])


def _cell(value: Any) -> str:
    """Shortest text that reads back as the same number; None, a quantity that is not defined, is an empty cell."""
    if value is None:
        return ""
    # float.__repr__, since numpy's float64 is a float whose own repr names its type.
    return float.__repr__(value) if isinstance(value, float) else str(value)


def _number(cell: str) -> float | int | None:
    if cell == "":
        return None
    try:
        return int(cell)
    except ValueError:
        return float(cell)
