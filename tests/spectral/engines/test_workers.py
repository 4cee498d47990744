"""Sharing work between threads changes who computes, never what."""

import threading

import pytest
import torch

from cmr_runner.spectral.engines.workers import Workers, one_thread


@pytest.mark.parametrize("helpers", [0, 1, 3])
def test_map_keeps_the_order(helpers):
    workers = Workers(helpers)
    assert workers.map([lambda i=i: i * i for i in range(50)]) == [i * i for i in range(50)]


@pytest.mark.parametrize("helpers", [0, 1, 3])
def test_a_task_may_split_itself(helpers):
    workers = Workers(helpers)

    def outer(i):
        return sum(workers.map([lambda j=j: 10 * i + j for j in range(5)]))

    tasks = [workers.submit(lambda i=i: outer(i)) for i in range(8)]
    assert [task.result() for task in tasks] == [50 * i + 10 for i in range(8)]


@pytest.mark.parametrize("helpers", [0, 1])
def test_an_error_reaches_whoever_asks_for_the_result(helpers):
    def fails():
        raise FloatingPointError("at layer 3")

    task = Workers(helpers).submit(fails)
    with pytest.raises(FloatingPointError, match="at layer 3"):
        task.result()


def test_without_helpers_nothing_runs_before_the_result_is_asked_for():
    ran = []
    task = Workers(0).submit(lambda: ran.append(threading.current_thread()))
    assert ran == []
    task.result()
    assert ran == [threading.current_thread()]


def test_with_a_helper_work_runs_beside_the_caller():
    done = threading.Event()
    task = Workers(1).submit(done.set)
    assert done.wait(timeout=30)
    task.result()


def test_tasks_see_one_intra_op_thread_and_no_gradients():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for helpers in (0, 2):
            seen = Workers(helpers).map([lambda: (torch.get_num_threads(), torch.is_grad_enabled())] * 6)
            assert set(seen) == {(1, False)}
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_one_thread_restores_the_count_after_an_error():
    before = torch.get_num_threads()
    with pytest.raises(ValueError, match="inside"), one_thread():
        raise ValueError("inside")
    assert torch.get_num_threads() == before
