"""Runs on a stream of tasks, seen task by task instead of epoch by epoch."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from cmr_runner.results.grouping import Group
from cmr_runner.results.reading import Columns, Run
from cmr_runner.results.tasks import TASK, task_ends


@dataclass(frozen=True)
class TaskRun(Run):
    """A run whose metrics have one row per task, that of its end; `epoch` counts the tasks from 1."""

    viewed: Run

    @cached_property
    def metrics(self) -> Columns:
        whole = self.viewed.metrics
        ends = whole.rows(task_ends(whole[TASK], self.complete))
        return Columns(ends.data | {"epoch": np.arange(1.0, len(ends) + 1)}, ends.note)

    @cached_property
    def complete(self) -> bool:
        return self.viewed.complete


def task_run(run: Run) -> TaskRun:
    return TaskRun(run.path, run.record, run)


def by_task(group: Group) -> Group:
    return replace(group, runs=tuple(task_run(run) for run in group.runs if TASK in run.metrics))
