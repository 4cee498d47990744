"""A quantity over epochs for several runs at once."""

from collections.abc import Sequence

import numpy as np

from cmr_runner.results.quantities import Quantity
from cmr_runner.results.reading import Run


def seed_matrix(runs: Sequence[Run], quantity: Quantity) -> tuple[np.ndarray, np.ndarray]:
    """Epochs and values (runs × epochs), nan where a run has no row."""
    epochs, (values,) = seed_matrices(runs, [quantity])
    return epochs, values


def seed_matrices(runs: Sequence[Run], quantities: Sequence[Quantity]) -> tuple[np.ndarray, np.ndarray]:
    """Epochs and values (quantities × runs × epochs), nan where a run has no row."""
    epochs = np.unique(np.concatenate([run.metrics["epoch"] for run in runs]))
    values = np.full((len(quantities), len(runs), len(epochs)), np.nan)
    for place, run in enumerate(runs):
        rows = np.searchsorted(epochs, run.metrics["epoch"])
        for quantity, matrix in zip(quantities, values, strict=True):
            matrix[place, rows] = quantity.values(run)
    return epochs, values
