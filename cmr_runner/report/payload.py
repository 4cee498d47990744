"""What the report's charts draw, as plain numbers for JSON."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from cmr_runner.results.by_task import by_task, task_run
from cmr_runner.results.grids import LEAST_RANGE, grid_of
from cmr_runner.results.grouping import GRID_KEYS, Group, dependences, headline, natural, sweep_grids, symbol
from cmr_runner.results.layer_columns import layer_histories, layer_matrix, layer_names, short_name
from cmr_runner.results.quantities import ACCURACY, QUANTITIES, Quantity, kind_quantities
from cmr_runner.results.reading import Run, value_text
from cmr_runner.results.seed_curves import seed_matrices
from cmr_runner.results.statistics import LEAST_SEEDS, t_band
from cmr_runner.results.tasks import TASK

LONGEST_LABEL = 32
MOST_SPECTRA = 60  # groups of an experiment whose spectra the page carries
MOST_FRAMES = 12  # epochs of them, the first and the last among these
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


def payload(experiments: Sequence[tuple[str, Sequence[Group]]], provenance: bool = False) -> dict[str, Any]:
    """Quantities, experiments, groups and runs; groups and runs refer to each other by their place in the lists."""
    groups = [group for _, several in experiments for group in several]
    runs = [run for group in groups for run in group.runs]
    place = {id(run): i for i, run in enumerate(runs)}
    logged: list[Quantity] = [q for q in QUANTITIES if any(q.logged(run) for run in runs)]
    kinds = [kind_quantities([run for group in several for run in group.runs]) for _, several in experiments]
    logged += dict.fromkeys(kind for of_one in kinds for kind in of_one)
    numbers = iter(range(len(groups)))
    layers = [layer_names(several) for _, several in experiments]
    logged_spectra = [_spectrum_layers(several) for _, several in experiments]
    common = _common(runs)
    return {
        "common": common,
        "quantities": [{"id": q.column, "label": q.label, "log": q.log} for q in logged],
        "experiments": [
            {
                "name": name,
                "groups": [next(numbers) for _ in several],
                "headline": _headline(several),
                "kinds": [kind.column for kind in of_one],
                "tasks": any(group.has(TASK) for group in several),
                "layers": [short_name(layer) for layer in names],
                "spectra": [short_name(layer) for layer in spectra],
                "dependences": _dependences(several, {id(group): i for i, group in enumerate(groups)}),
                "grids": _grids(several, {id(group): i for i, group in enumerate(groups)}),
            }
            for (name, several), names, spectra, of_one in zip(experiments, layers, logged_spectra, kinds, strict=True)
        ],
        "groups": [
            _group(group, names, spectra, [place[id(run)] for run in group.runs], logged)
            for (_, several), names, spectra in zip(experiments, layers, logged_spectra, strict=True)
            for group in several
        ],
        "runs": [_run(run, logged, common, provenance) for run in runs],
    }


def _headline(groups: Sequence[Group]) -> dict[str, Any]:
    judged = headline(groups)
    return {
        "id": judged.column,
        "label": judged.label,
        "log": judged.log,
        "unit": " %" * (judged.factor == ACCURACY.factor),
    }


def _spectrum_layers(groups: Sequence[Group]) -> list[str]:
    return layer_names(groups, "spectra") if len(groups) <= MOST_SPECTRA else []


def _dependences(groups: Sequence[Group], places: dict[int, int]) -> list[dict[str, Any]]:
    """The swept keys of an experiment, and its series along each as places of groups."""
    by_run = {id(group.runs[0]): places[id(group)] for group in groups}
    return [
        {
            "key": one.key,
            "series": [
                {
                    "label": series.distinction,
                    "groups": [by_run[id(group.runs[0])] for group in _ordered(series.groups, one.key)],
                    "values": [float(value_text(group.field(one.key))) for group in _ordered(series.groups, one.key)],
                }
                for series in one.series
            ],
        }
        for one in dependences([run for group in groups for run in group.runs])
    ]


def _grids(groups: Sequence[Group], places: dict[int, int]) -> list[dict[str, Any]]:
    """The maps of λ and ρ_spec, cells as places of groups, and what their colours span at least."""
    by_run = {id(group.runs[0]): places[id(group)] for group in groups}
    found = []
    for setting in sweep_grids([run for group in groups for run in group.runs]):
        grid = grid_of(setting.groups)
        found.append(
            {
                "name": setting.distinction,
                "axes": [symbol(key) for key in GRID_KEYS],
                "rows": grid.rows,
                "columns": grid.columns,
                "cells": [[by_run[id(group.runs[0])] if group else None for group in row] for row in grid.cells],
                "paper": grid.paper,
                "least": {quantity.column: least for quantity, least in LEAST_RANGE.items()},
            }
        )
    return found


def _ordered(groups: Sequence[Group], key: str) -> list[Group]:
    return sorted(groups, key=lambda group: natural(group.field(key)))


def _common(runs: Sequence[Run]) -> dict[str, str]:
    """The settings that all runs share: the page holds them once."""
    values = [{key: value_text(value) for key, value in run.fields.items()} for run in runs]
    return {k: v for k, v in (values[0].items() if values else ()) if all(other.get(k) == v for other in values)}


def _group(
    group: Group, layers: Sequence[str], spectra: Sequence[str], runs: list[int], quantities: Sequence[Quantity]
) -> dict[str, Any]:
    histories = layer_histories(group) if spectra else {}
    epochs, curves = _mean_curves(group, quantities)
    layer_epochs, kappa = layer_matrix(group, layers, "kappa")
    return {
        "label": group.label,
        "short": shortened(group.label),
        "spectra": {str(i): _frames(*histories[name]) for i, name in enumerate(spectra) if name in histories},
        "n": group.n,
        "color": group.look.color,
        "dash": DASHES[group.look.dash],
        "symbol": SYMBOLS[group.look.marker],
        "runs": runs,
        "epochs": rounded(epochs),
        "curves": curves,
        "tasks": _tasks(group),
        "layerEpochs": rounded(layer_epochs),
        "kappa": [rounded(row) for row in kappa],
    }


def _frames(epochs: np.ndarray, percentiles: np.ndarray, sigma: np.ndarray) -> dict[str, Any]:
    """Every other percentile of a few epochs: what a chart of one layer needs to move."""
    shown = np.unique(np.linspace(0, len(epochs) - 1, MOST_FRAMES).round().astype(int))
    return {
        "epochs": rounded(epochs[shown]),
        "percentiles": rounded(percentiles[::2]),
        "sigma": [rounded(row, 4) for row in sigma[shown, ::2]],
    }


def _mean_curves(group: Group, quantities: Sequence[Quantity]) -> tuple[np.ndarray, dict[str, list]]:
    """Centre, lower and upper bound of each quantity over the complete runs."""
    if not group.complete:
        return np.array([]), {}
    epochs, values = seed_matrices(group.complete, quantities)
    some = np.isfinite(values).any(axis=(1, 2))
    shown = [quantity for quantity, finite in zip(quantities, some, strict=True) if finite]
    bands = {log: np.array(t_band(values[some].swapaxes(0, 1), log)) for log in (False, True)}
    curves = {}
    for place, quantity in enumerate(shown):
        middle, *band = bands[quantity.log][:, place]
        bounds = quantity.within_bounds(np.array(band)) if group.n >= LEAST_SEEDS else ()
        curves[quantity.column] = [rounded(line) for line in (middle, *bounds)]
    return epochs, curves


def _tasks(group: Group) -> dict[str, Any]:
    """Epochs and curves once more, for a stream of tasks: what was reached at the end of each."""
    if not group.has(TASK):
        return {}
    tasks, curves = _mean_curves(by_task(group), [ACCURACY])
    return {"epochs": rounded(tasks), "curves": curves}


def _run(run: Run, quantities: Sequence[Quantity], common: dict[str, str], provenance: bool) -> dict[str, Any]:
    own = {key: value_text(value) for key, value in run.fields.items() if key not in common}
    return {
        "name": run.name,
        "seed": run.seed,
        "complete": run.complete,
        "ending": run.ending,
        "own": own,
        "command": value_text(run.provenance.get("command") or ""),
        "made": made(run, provenance),
        "epochs": rounded(run.metrics["epoch"]),
        "curves": {q.column: rounded(q.values(run)) for q in quantities if q.logged(run)},
        "tasks": _run_tasks(run),
    }


def _run_tasks(run: Run) -> dict[str, Any]:
    if TASK not in run.metrics:
        return {}
    view = task_run(run)
    return {"epochs": rounded(view.metrics["epoch"]), "curves": {ACCURACY.column: rounded(ACCURACY.values(view))}}


def rounded(values: Iterable[float], digits: int = 6) -> list[float | None]:
    """Six significant digits, which no chart can tell from more; None for what JSON has no word for."""
    return [float(f"{value:.{digits}g}") if math.isfinite(value) else None for value in values]


def made(run: Run, provenance: bool) -> dict[str, str]:
    """Code, machine and time of a run; which machine it was only where asked for."""
    record = run.provenance
    versions = record.get("versions")
    facts = {
        "code": value_text(record.get("git_sha") or "unknown")[:12] + " (changed)" * bool(record.get("git_dirty")),
        "versions": ", ".join(f"{k} {v}" for k, v in versions.items()) if isinstance(versions, dict) else "",
    }
    keys = (*(("host",) if provenance else ()), "cpu", "instructions", "threads", "device", "start", "end")
    return facts | {key: value_text(record.get(key) or "") for key in keys}


def shortened(label: str) -> str:
    return label if len(label) <= LONGEST_LABEL else f"{label[: LONGEST_LABEL - 1].rstrip()}…"
