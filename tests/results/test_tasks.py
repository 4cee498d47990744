"""A stream of tasks: what is reached at the end of each."""

import numpy as np
import pytest

from cmr_runner.results.by_task import by_task
from cmr_runner.results.grouping import group_runs, headline, merit
from cmr_runner.results.quantities import ACCURACY, TASK_MEAN
from cmr_runner.results.reading import find_runs
from cmr_runner.results.tasks import task_columns, task_ends

from .beyond_runs import write_stream

TASKS = np.array([0.0, 0, 0, 1, 1, 2, 2])
ACCURACIES = np.array([0.1, 0.5, 0.8, 0.4, 0.6, 0.3, 0.1])


def test_a_tasks_end_is_its_last_epoch_and_a_task_cut_short_has_none():
    assert task_ends(TASKS, complete=False).tolist() == [2, 4, 6]
    assert task_ends(TASKS[:-1], complete=False).tolist() == [2, 4]


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_an_only_task_has_an_end_once_the_run_is_complete(rows):
    assert task_ends(TASKS[:rows], complete=False).tolist() == []
    assert task_ends(TASKS[:rows], complete=True).tolist() == [rows - 1]


def test_the_mean_counts_each_task_once_at_its_end():
    columns = task_columns({"task": TASKS, "test_accuracy": ACCURACIES})
    mean, first = columns["task_mean_test_accuracy"], columns["task_first_test_accuracy"]
    assert mean == pytest.approx([0.1, 0.5, 0.8, 0.6, 0.7, 1.7 / 3, 0.5])
    assert np.isnan(first[:2]).all()
    assert first[2:].tolist() == [0.8] * 5


@pytest.mark.parametrize("rows", [0, 1])
def test_a_stream_that_has_hardly_begun_is_no_error(rows):
    columns = task_columns({"task": TASKS[:rows], "test_accuracy": ACCURACIES[:rows]})
    assert columns["task_mean_test_accuracy"].tolist() == ACCURACIES[:rows].tolist()


def test_groups_are_ranked_by_the_mean_over_tasks_and_seen_task_by_task(tmp_path):
    write_stream(tmp_path, "none", epochs=6, target=(0.5, 9.0))
    write_stream(tmp_path, "cmr", epochs=6, target=(0.9, 9.0))
    write_stream(tmp_path, "l2", epochs=6, rows=6, status="interrupted")
    runs, _ = find_runs([tmp_path])
    vanilla, l2, cmr = group_runs(runs)
    assert headline([vanilla]) is TASK_MEAN
    assert merit(cmr) > merit(vanilla) > merit(l2)
    (view,) = by_task(vanilla).complete
    assert view.metrics["epoch"].tolist() == [1, 2, 3]
    assert ACCURACY.values(view) == pytest.approx(ACCURACY.values(vanilla.runs[0])[[2, 4, 6]])
    assert by_task(l2).partial[0].metrics["epoch"].tolist() == [1, 2]


@pytest.mark.parametrize("rows", [1, 3])
def test_a_run_in_its_first_task_has_reached_the_end_of_none(tmp_path, rows):
    write_stream(tmp_path, "none", epochs=6, rows=rows, status="running")
    (group,) = group_runs(find_runs([tmp_path])[0])
    assert group.runs[0].metrics["epoch"].tolist() == list(range(rows))
    assert by_task(group).partial[0].metrics["epoch"].tolist() == []


def test_the_view_by_task_does_not_read_the_files_again(tmp_path):
    folder = write_stream(tmp_path, "none", epochs=6)
    (group,) = group_runs(find_runs([tmp_path])[0])
    assert group.n == 1
    (folder / "metrics.csv").unlink()
    (view,) = by_task(group).complete
    assert view.metrics["epoch"].tolist() == [1, 2, 3]
