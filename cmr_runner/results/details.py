"""What stands behind the summary: every group epoch by epoch, and every run by its end."""

from collections.abc import Sequence

import numpy as np

from cmr_runner.results.grouping import Group
from cmr_runner.results.numerals import number
from cmr_runner.results.quantities import BY_EPOCH, TRAIN_LOSS, Quantity
from cmr_runner.results.reading import Run, value_text
from cmr_runner.results.seed_curves import seed_matrices
from cmr_runner.results.summary import Cell, judged_by, shown_quantities


def epoch_header(groups: Sequence[Group]) -> tuple[str, ...]:
    return ("group", "epoch", *(quantity.heading for quantity in _by_epoch(groups)))


def run_header(groups: Sequence[Group]) -> tuple[str, ...]:
    return ("group", "seed", "status", *(quantity.heading for quantity in shown_quantities(groups)), "minutes")


def epoch_rows(groups: Sequence[Group]) -> list[list[str]]:
    """Centre and spread over the complete runs of each group, one row per epoch."""
    rows = []
    quantities = _by_epoch(groups)
    for group in groups:
        if not group.complete:
            continue
        epochs, curves = seed_matrices(group.complete, quantities)
        for place, epoch in enumerate(epochs):
            cells = [Cell.of(q, values[:, place].tolist()) for q, values in zip(quantities, curves, strict=True)]
            rows.append([group.label, f"{epoch:g}", *(cell.text for cell in cells)])
    return rows


def run_rows(groups: Sequence[Group]) -> list[list[str]]:
    """The last logged values of each run, complete or not."""
    rows = []
    shown = shown_quantities(groups)
    for group in groups:
        for run in group.runs:
            ends = [Cell.of(quantity, quantity.values(run)[-1:].tolist()).text for quantity in shown]
            rows.append([group.label, value_text(run.seed), run.ending_and_reason, *ends, number(seconds(run) / 60)])
    return rows


def seconds(run: Run) -> float:
    """What the run's epochs took."""
    return float(np.nansum(run.metrics["seconds"]))


def time_text(experiments: Sequence[tuple[str, Sequence[Group]]]) -> str:
    """How long all runs took together. A run copied from another experiment took no time of its own."""
    runs = [run for _, groups in experiments for group in groups for run in group.runs]
    own = [run for run in runs if "copied_from" not in run.provenance]
    hours = sum(map(seconds, own)) / 3600
    copied = f", {len(runs) - len(own)} of them copied between experiments" if len(own) < len(runs) else ""
    return f"{len(runs)} runs{copied}; their epochs took {number(hours)} hours in all."


def _by_epoch(groups: Sequence[Group]) -> list[Quantity]:
    return [TRAIN_LOSS, *judged_by(groups), *BY_EPOCH]
