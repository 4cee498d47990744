"""Whether it pays to begin the spectral work of a step early, found by trying."""

from __future__ import annotations

import statistics
import time

TRIAL = 24  # steps in each way before one is preferred
IN_A_ROW = 8  # one way: where layers take turns, steps differ in cost, and both ways have to see them all
GAIN = 0.97  # an early start is preferred below this part of the time without: noise alone stays above it
KEPT = 2000  # steps until the next trial: what else the machine does may change


class Overlap:
    """Steps are timed from one add_gradients to the next, some with and some without an early start.

    Beside a network that leaves a core idle the early start gains; beside one that keeps all of them busy it slows the
    network down by more. Which of the two it is depends on sizes, threads and load, so it is measured. A trial costs
    at most TRIAL steps of the slower way in KEPT. No result depends on it.
    """

    def __init__(self) -> None:
        self._early: bool | None = None  # None while a trial lasts
        self._times: dict[bool, list[float]] = {True: [], False: []}
        self._this_way = False
        self._ended: float | None = None
        self._left = 0

    def worth_it(self) -> bool:
        """Asked before each step: whether this one begins early."""
        early, late = len(self._times[True]), len(self._times[False])
        in_trial = early < TRIAL and (late >= TRIAL or (early + late) // IN_A_ROW % 2 == 0)
        self._this_way = in_trial if self._early is None else self._early
        return self._this_way

    def step_ended(self) -> None:
        before, self._ended = self._ended, time.perf_counter()
        if self._early is not None:
            self._left -= 1
            if self._left <= 0:
                self._early, self._times = None, {True: [], False: []}
        elif before is not None and len(self._times[self._this_way]) < TRIAL:
            self._times[self._this_way].append(self._ended - before)
            if all(len(times) >= TRIAL for times in self._times.values()):
                early, late = (statistics.median(self._times[way]) for way in (True, False))
                self._early, self._left = early < GAIN * late, KEPT
