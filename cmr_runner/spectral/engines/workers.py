"""A few threads that share the spectral work with whoever waits for it.

Every task runs on one intra-op thread, whoever runs it, so its rounding does not depend on how many helpers there are
or on whether the work was started early: overlapping changes no result. Weights must not change while tasks run.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any, Generic, TypeVar

import torch

T = TypeVar("T")


class Task(Generic[T]):
    """A computation handed to Workers; `result()` returns its value or raises what it raised."""

    def __init__(self, compute: Callable[[], T], workers: Workers) -> None:
        self._compute, self._workers = compute, workers
        self._value: T | None = None
        self._error: BaseException | None = None
        self.done = False

    def run(self) -> None:
        try:
            with task_context():
                self._value = self._compute()
        except BaseException as error:  # it belongs to whoever asks for the result
            self._error = error

    def result(self) -> T:
        """The value. While it is not there, the calling thread takes queued tasks itself instead of idling."""
        self._workers.help_until(self)
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]


class Workers:
    """`helpers` daemon threads over one queue. With none, a task runs when its result is asked for.

    A task may split itself with `map`: the parts go to the front of the queue, so that a waiting thread takes those
    first and the waits cannot lock each other out.
    """

    def __init__(self, helpers: int) -> None:
        self.helpers = helpers
        self._queue: deque[Task[Any]] = deque()
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []

    def submit(self, compute: Callable[[], T], *, first: bool = False) -> Task[T]:
        task = Task(compute, self)
        with self._changed:
            if len(self._threads) < self.helpers:  # started late, so that a process that never needs them has none
                thread = threading.Thread(target=self._serve, daemon=True, name=f"spectral-{len(self._threads)}")
                self._threads.append(thread)
                thread.start()
            (self._queue.appendleft if first else self._queue.append)(task)
            self._changed.notify_all()
        return task

    def map(self, computes: Sequence[Callable[[], T]]) -> list[T]:
        """The values of all, in order, shared between the helpers and the calling thread."""
        if not self.helpers or len(computes) <= 1:
            with task_context():
                return [compute() for compute in computes]
        tasks = [self.submit(compute, first=True) for compute in reversed(computes)][::-1]
        return [task.result() for task in tasks]

    def help_until(self, wanted: Task[Any]) -> None:
        while not wanted.done:
            with self._changed:
                while not self._queue and not wanted.done:
                    self._changed.wait()
                if wanted.done:
                    return
                task = self._queue.popleft()
            self._finish(task)

    def _serve(self) -> None:
        torch.set_num_threads(1)  # of this thread
        while True:
            with self._changed:
                while not self._queue:
                    self._changed.wait()
                task = self._queue.popleft()
            self._finish(task)
            del task  # its result may be large

    def _finish(self, task: Task[Any]) -> None:
        task.run()
        with self._changed:
            task.done = True
            self._changed.notify_all()


_this_thread = threading.local()


@contextmanager
def task_context() -> Iterator[None]:
    """What every task runs under, whoever runs it. Within a task it is there already."""
    if getattr(_this_thread, "in_task", False):
        yield
        return
    _this_thread.in_task = True
    try:
        with one_thread(), torch.no_grad(), without_autocast():
            yield
    finally:
        _this_thread.in_task = False


@contextmanager
def without_autocast() -> Iterator[None]:
    """Spectra are taken in the weights' own precision, whatever surrounds the thread that happens to run the task."""
    enabled = [device for device in _devices() if torch.is_autocast_enabled(device)]
    if not enabled:
        yield
        return
    with ExitStack() as stack:
        for device in enabled:
            stack.enter_context(torch.autocast(device, enabled=False))
        yield


@cache
def _devices() -> tuple[str, ...]:
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return ("cpu",) if accelerator is None else ("cpu", accelerator.type)


@contextmanager
def one_thread() -> Iterator[None]:
    """One intra-op thread for the calling thread, and its former count afterwards."""
    before = torch.get_num_threads()
    if before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
