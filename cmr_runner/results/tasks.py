"""A stream of tasks: what a network reaches at the end of each, from the column `task` of metrics.csv."""

from collections.abc import Mapping

import numpy as np

TASK = "task"
JUDGED = ("test_accuracy", "val_accuracy")
MEAN, FIRST = "task_mean", "task_first"  # in front of the column they are taken of


def task_columns(data: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Columns that follow from the others where there are tasks: of each accuracy, its mean over the tasks so far, each
    at its end and the present one as it stands, and what the first task reached at its end."""
    if TASK not in data:
        return {}
    found = {}
    for name in JUDGED:
        if name in data:
            found[f"{MEAN}_{name}"] = _mean_so_far(data[TASK], data[name])
            found[f"{FIRST}_{name}"] = _first(data[TASK], data[name])
    return found


def task_ends(tasks: np.ndarray, complete: bool) -> np.ndarray:
    """The row at which each task ends. A last task that was cut short is left out; so is the only one of a run that is
    not complete, since nothing says yet how long a task is."""
    _, first, lengths = np.unique(tasks, return_index=True, return_counts=True)
    lengths[:1] -= 1  # row 0 stands before training
    cut = lengths[-1] < lengths[0] if len(lengths) > 1 else not complete
    return (np.append(first[1:], len(tasks)) - 1)[: max(0, len(lengths) - int(cut))]


def _mean_so_far(tasks: np.ndarray, values: np.ndarray) -> np.ndarray:
    before, count = 0.0, 0
    means = np.full(len(values), np.nan)
    for row, value in enumerate(values):
        if row and tasks[row] != tasks[row - 1]:
            before, count = before + values[row - 1], count + 1
        means[row] = (before + value) / (count + 1)
    return means


def _first(tasks: np.ndarray, values: np.ndarray) -> np.ndarray:
    end = int(np.argmax(tasks != tasks[0])) - 1 if (tasks != tasks[:1]).any() else len(tasks) - 1
    column = np.full(len(values), np.nan)
    column[end:] = values[end:][:1]
    return column
