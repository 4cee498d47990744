"""Columns of layers.csv and spectra.csv joined over the seeds of a group."""

from collections.abc import Iterator, Sequence

import numpy as np

from cmr_runner.results.grouping import Group
from cmr_runner.results.reading import Run


def layer_names(groups: Sequence[Group], table: str = "layers") -> list[str]:
    """Layers in the order in which the files name them. What only some runs have stands where it does in theirs."""
    tables = (getattr(run, table) for group in groups for run in shown_runs(group))
    names: list[str] = []
    for columns in tables:
        if "layer" not in columns or "epoch" not in columns:
            continue
        place = 0
        for name in dict.fromkeys(columns["layer"]):
            if name not in names:
                names.insert(place, name)
            place = names.index(name) + 1
    return names


# What PyTorch's own modules put into a name that a reader of a figure can do without.
SHORTER = ((".weight", ""), ("encoder.layers.", "block "), (".self_attn", ".attn"), (".in_proj_weight", ""))


def short_name(layer: str) -> str:
    """A layer's name without the parameter's, which is nearly always `weight`."""
    for long, short in SHORTER:
        layer = layer.replace(long, short)
    return layer


def heads_note(groups: Sequence[Group]) -> str:
    """What a caption must add where some groups log their attention matrices whole and others head by head."""
    by_head = [any(".h0" in name for name in layer_names([group])) for group in groups]
    apart = any(by_head) and not all(by_head)
    return " By head, κ is that of each head's part and not comparable with whole matrices." if apart else ""


def shown_runs(group: Group) -> tuple[Run, ...]:
    """The complete runs; where there is none, those there are."""
    return group.complete or group.partial


def layer_matrix(group: Group, names: Sequence[str], column: str) -> tuple[np.ndarray, np.ndarray]:
    """Epochs and the geometric mean over seeds of a layers.csv column (layers × epochs), nan where not logged."""
    runs = [run for run in shown_runs(group) if all(key in run.layers for key in ("epoch", "layer", column))]
    if not runs:
        return np.array([]), np.full((len(names), 0), np.nan)
    epochs = np.unique(np.concatenate([run.layers["epoch"] for run in runs]))
    epochs = epochs[np.isfinite(epochs)]
    row = {name: i for i, name in enumerate(names)}
    total, count = np.zeros((2, len(names), len(epochs)))
    for run in runs:
        table = run.layers
        ok = np.isfinite(table["epoch"]) & (table[column] > 0) & np.isfinite(table[column])
        place = np.array([row[name] for name in table["layer"][ok]], dtype=int)
        time = np.searchsorted(epochs, table["epoch"][ok])
        np.add.at(total, (place, time), np.log(table[column][ok]))
        np.add.at(count, (place, time), 1.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return epochs, np.exp(total / count)


def layer_spectra(group: Group, when: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Layer → percentiles and the geometric mean over seeds of its singular values, `before` or `after` training."""
    parts: dict[str, list[np.ndarray]] = {}
    for run in shown_runs(group):
        table = run.spectra
        if not np.isfinite(table["epoch"]).any():
            continue
        epoch = np.nanmin(table["epoch"]) if when == "before" else np.nanmax(table["epoch"])
        rows = np.flatnonzero((table["epoch"] == epoch) & (table["sigma"] > 0) & np.isfinite(table["percentile"]))
        points = np.stack([table["percentile"], table["sigma"]], axis=1)
        for name in dict.fromkeys(table["layer"][rows]):
            parts.setdefault(name, []).append(points[rows[table["layer"][rows] == name]])
    return {name: _joined(np.concatenate(points)) for name, points in parts.items()}


def layer_histories(group: Group) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Layer → epochs, percentiles and the geometric mean over seeds of its singular values (epochs × percentiles), nan
    where not logged."""
    return {layer: _history(points) for layer, points in layer_points(group).items()}


def _history(points: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    epochs, time = np.unique(points[:, 0], return_inverse=True)
    percentiles, place = np.unique(points[:, 1], return_inverse=True)
    total, count = np.zeros((2, len(epochs), len(percentiles)))
    np.add.at(total, (time, place), np.log(points[:, 2]))
    np.add.at(count, (time, place), 1.0)
    with np.errstate(invalid="ignore"):
        return epochs, percentiles, np.exp(total / count)


def layer_points(group: Group) -> dict[str, np.ndarray]:
    """Layer → rows of epoch, percentile and σ of the group's runs; every logged epoch."""
    parts: dict[str, list[np.ndarray]] = {}
    for names, points in _logged_points(group):
        rows: dict[str, list[int]] = {}
        for row, layer in enumerate(names):
            rows.setdefault(layer, []).append(row)
        for layer, index in rows.items():
            parts.setdefault(layer, []).append(points[index])
    return {layer: np.concatenate(several) for layer, several in parts.items()}


def spectrum_history(group: Group) -> np.ndarray:
    """Rows of epoch, percentile and σ of the group's runs over all layers; every logged epoch."""
    return np.concatenate([np.zeros((0, 3)), *(points for _, points in _logged_points(group))])


def _logged_points(group: Group) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Of each run the layers and, in a row each, epoch, percentile and σ."""
    for run in shown_runs(group):
        table = run.spectra
        if all(name in table for name in ("epoch", "layer", "percentile", "sigma")):
            kept = (table["sigma"] > 0) & np.isfinite(table["epoch"]) & np.isfinite(table["percentile"])
            columns = [table[name][kept] for name in ("epoch", "percentile", "sigma")]
            yield table["layer"][kept], np.stack(columns, axis=1)


def _joined(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    percentiles, place = np.unique(points[:, 0], return_inverse=True)
    return percentiles, np.exp(np.bincount(place, np.log(points[:, 1])) / np.bincount(place))
