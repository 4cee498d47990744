"""What the report's charts draw, as plain numbers for JSON."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from cmr_runner.results.grouping import Group
from cmr_runner.results.layer_columns import layer_matrix, layer_names, short_name
from cmr_runner.results.quantities import QUANTITIES, Quantity
from cmr_runner.results.reading import Run
from cmr_runner.results.seed_curves import seed_matrix
from cmr_runner.results.statistics import LEAST_SEEDS, t_band

DASHES = {"-": "solid", "--": "dash", "-.": "dashdot", ":": "dot"}
SYMBOLS = {
    "o": "circle",
    "s": "square",
    "^": "triangle-up",
    "v": "triangle-down",
    "<": "triangle-left",
    ">": "triangle-right",
    "D": "diamond",
    "d": "diamond-tall",
    "P": "cross",
    "X": "x",
    "h": "hexagon",
    "p": "pentagon",
    "8": "octagon",
    "*": "star",
}


def payload(experiments: Sequence[tuple[str, Sequence[Group]]]) -> dict[str, Any]:
    """Quantities, experiments, groups and runs; groups and runs refer to each other by their place in the lists."""
    groups = [group for _, several in experiments for group in several]
    runs = [run for group in groups for run in group.runs]
    place = {id(run): i for i, run in enumerate(runs)}
    logged = [q for q in QUANTITIES if any(q.column in run.metrics for run in runs)]
    numbers = iter(range(len(groups)))
    layers = [layer_names(several) for _, several in experiments]
    return {
        "quantities": [{"id": q.column, "label": q.label, "log": q.log} for q in logged],
        "experiments": [
            {
                "name": name,
                "groups": [next(numbers) for _ in several],
                "layers": [short_name(layer) for layer in names],
            }
            for (name, several), names in zip(experiments, layers, strict=True)
        ],
        "groups": [
            _group(group, names, [place[id(run)] for run in group.runs], logged)
            for (_, several), names in zip(experiments, layers, strict=True)
            for group in several
        ],
        "runs": [_run(run, logged) for run in runs],
    }


def _group(group: Group, layers: Sequence[str], runs: list[int], quantities: Sequence[Quantity]) -> dict[str, Any]:
    epochs, curves = _mean_curves(group, quantities)
    layer_epochs, kappa = layer_matrix(group, layers, "kappa")
    return {
        "label": group.label,
        "n": group.n,
        "color": group.look.color,
        "dash": DASHES[group.look.dash],
        "symbol": SYMBOLS[group.look.marker],
        "runs": runs,
        "epochs": rounded(epochs),
        "curves": curves,
        "layerEpochs": rounded(layer_epochs),
        "kappa": [rounded(row) for row in kappa],
    }


def _mean_curves(group: Group, quantities: Sequence[Quantity]) -> tuple[np.ndarray, dict[str, list]]:
    """Centre, lower and upper bound of each quantity over the complete runs."""
    if not group.complete:
        return np.array([]), {}
    curves = {}
    for quantity in quantities:
        epochs, values = seed_matrix(group.complete, quantity)
        if np.isfinite(values).any():
            bands = t_band(values, quantity.log)
            curves[quantity.column] = [rounded(band) for band in (bands if group.n >= LEAST_SEEDS else bands[:1])]
    return epochs, curves


def _run(run: Run, quantities: Sequence[Quantity]) -> dict[str, Any]:
    return {
        "name": run.name,
        "seed": run.seed,
        "complete": run.complete,
        "ending": run.ending,
        "epochs": rounded(run.metrics["epoch"]),
        "curves": {q.column: rounded(q.values(run)) for q in quantities if q.column in run.metrics},
    }


def rounded(values: Iterable[float]) -> list[float | None]:
    """Six significant digits, which no chart can tell from more; None for what JSON has no word for."""
    return [float(f"{value:.6g}") if math.isfinite(value) else None for value in values]
