"""A quantity over epochs for several runs at once."""

from collections.abc import Sequence

import numpy as np

from cmr_runner.results.quantities import Quantity
from cmr_runner.results.reading import Run


def seed_matrix(runs: Sequence[Run], quantity: Quantity) -> tuple[np.ndarray, np.ndarray]:
    """Epochs and values (runs × epochs), nan where a run has no row."""
    epochs = np.unique(np.concatenate([run.metrics["epoch"] for run in runs]))
    values = np.full((len(runs), len(epochs)), np.nan)
    for row, run in zip(values, runs, strict=True):
        row[np.searchsorted(epochs, run.metrics["epoch"])] = quantity.values(run)
    return epochs, values
