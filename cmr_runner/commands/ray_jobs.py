"""Jobs that Ray runs: waiting for all of them, past those whose process dies. Hydra's plugin gives up the whole sweep
with the first of those."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import ray
from hydra.core.utils import JobReturn, JobStatus
from hydra_plugins.hydra_ray_launcher import _core
from hydra_plugins.hydra_ray_launcher._launcher_util import launch_job_on_ray
from omegaconf import DictConfig
from ray.exceptions import OutOfMemoryError, RayError, WorkerCrashedError

from cmr_runner.commands.jobs import job_directory
from cmr_runner.commands.journal import Journal
from cmr_runner.commands.workers import KILLED
from cmr_runner.runs.outcome import Outcome


class RayJobs:
    """The jobs of one sweep that were given to Ray."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.configs: dict[Any, DictConfig] = {}  # by Ray's reference

    def tame(self) -> None:
        """Make Hydra's plugin launch by `launched` and wait by `result`."""
        plugin: Any = _core
        plugin.launch_job_on_ray = self.launched
        plugin.ray = SimpleNamespace(get=self.result)

    def launched(self, context: Any, remote: Any, config: DictConfig, *others: Any) -> Any:
        reference = launch_job_on_ray(context, remote, config, *others)
        self.configs[reference] = config
        return reference

    def result(self, reference: Any) -> JobReturn:
        """What the job returned, or a failed one in its place. Waits for it."""
        try:
            return ray.get(reference)
        except RayError as error:
            config = self.configs[reference]
            number = config.hydra.job.num
            if number not in self.journal.outcomes():
                lost = isinstance(error, WorkerCrashedError | OutOfMemoryError)
                reason = KILLED if lost else f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
                self.journal.report(number, Outcome("failed", str(job_directory(config)), reason))
            return JobReturn(_return_value=float("nan"), status=JobStatus.COMPLETED)
