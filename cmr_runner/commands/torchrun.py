"""One run over several processes (torchrun): the first keeps the run directory, the others follow it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from cmr_runner.commands.execution import Job, execute
from cmr_runner.commands.progress import Progress
from cmr_runner.runs.outcome import Outcome

if TYPE_CHECKING:
    from cmr_runner.distributed import Ranks
    from cmr_runner.training.loop import Trainer


def processes() -> int:
    """How many processes torchrun started, 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def execute_together(
    job: Job,
    build: Callable[[str, Ranks], Trainer],
    progress: Progress,
    should_stop: Callable[[], bool],
) -> Outcome:
    """`execute` by the first process; the others train beside it and write nothing."""
    from cmr_runner.distributed import Ranks

    ranks = Ranks.joined()
    try:
        if ranks.first:
            return _lead(job, lambda device: build(device, ranks), ranks, progress, should_stop)
        return _follow(job, lambda device: build(device, ranks), ranks, should_stop)
    finally:
        ranks.leave()


def end_process(code: int) -> NoReturn:
    """End a process of torchrun's at once, once all is written.

    PyTorch's gloo threads outlive their process group. One that lets go of a tensor while the interpreter is being
    taken down aborts the process, and torchrun takes a run that was completed for a failed one.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _lead(
    job: Job, build: Callable[[str], Trainer], ranks: Ranks, progress: Progress, should_stop: Callable[[], bool]
) -> Outcome:
    told: list[bool] = []

    def tell(state: object) -> None:
        told.append(True)
        ranks.from_first({"state": state})

    outcome = execute(job, build, progress, should_stop, tell)
    if not told:
        ranks.from_first({"outcome": outcome.as_dict()})
    return outcome


def _follow(job: Job, build: Callable[[str], Trainer], ranks: Ranks, should_stop: Callable[[], bool]) -> Outcome:
    from cmr_runner.commands.construction import resolve_device
    from cmr_runner.commands.signals import STOP
    from cmr_runner.training.loop import Diverged, Interrupted, Stopped

    message: dict[str, Any] = ranks.from_first(None)
    if "outcome" in message:
        return Outcome(**message["outcome"])
    trainer = build(resolve_device(job.settings.device))
    if message["state"] is not None:
        trainer.load_state_dict(message["state"])
    directory = str(job.directory)
    try:
        with STOP.graceful():
            for _ in trainer.run(should_stop):
                trainer.state_dict()  # collective: the first process saves what each knows
    except Stopped as error:
        return Outcome("stopped", directory, str(error))
    except Diverged as error:
        return Outcome("diverged", directory, str(error))
    except Interrupted as error:
        return Outcome("interrupted", directory, str(error), signal=STOP.signal)
    return Outcome("completed", directory)
