"""A sweep in the process that runs it: how its launcher is set up, the table at its end, its exit code."""

from __future__ import annotations

import contextlib
import os
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from hydra.experimental.callback import Callback
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from cmr_runner.checks import boolean
from cmr_runner.commands import sweep_line
from cmr_runner.commands.journal import Journal
from cmr_runner.commands.places import check_run, check_sweep
from cmr_runner.commands.settings import Mistake, parallel_jobs
from cmr_runner.commands.signals import LEAVING, STOP
from cmr_runner.commands.streams import say
from cmr_runner.commands.workers import DeathWatch
from cmr_runner.results.details import seconds
from cmr_runner.results.grouping import Group, group_runs, headline, merit
from cmr_runner.results.quantities import KAPPA, Quantity
from cmr_runner.results.reading import DamagedRun, read_run, tell_seeds_apart
from cmr_runner.results.summary import final_cells
from cmr_runner.results.text_table import aligned
from cmr_runner.runs.outcome import FAILURE, Outcome


class SweepCallback(Callback):
    """Hydra's hook before a run or a sweep, in the process that was started (conf/config.yaml, hydra.callbacks)."""

    watch: ClassVar[DeathWatch | None] = None  # over joblib's workers

    def on_run_start(self, config: DictConfig, **kwargs: Any) -> None:
        _exit_if_mistaken(check_run, config)
        _end_if_dry(config, sweep=False)

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        _exit_if_mistaken(check_sweep, config)
        _end_if_dry(config, sweep=True)
        try:
            journal = Journal.open(Path(str(config.output_root)))
        except OSError:
            return  # Hydra meets the same directory next and raises what main() reports
        STOP.on_request = journal.request_stop
        STOP.hold()
        _tame(config, journal)
        sweep_line.begin(journal, config)
        if config.hydra.runtime.choices["hydra/launcher"] == "joblib" and hasattr(os, "pidfd_open"):
            SweepCallback.watch = DeathWatch(journal)


def _exit_if_mistaken(check: Callable[[DictConfig], None], config: DictConfig) -> None:
    """Hydra turns an exception of its hooks into a warning and goes on; it lets the end of the process be."""
    try:
        check(config)
    except Mistake as error:
        say(f"cmr-run: {error}", sys.stderr)
        raise SystemExit(2) from None
    except OmegaConfBaseException:
        pass  # a value that cannot be resolved: Hydra meets it next and raises what main() reports


class PastHydra(BaseException):
    """Carries an error past Hydra, which goes on after any Exception of a hook."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


def _end_if_dry(config: DictConfig, *, sweep: bool) -> None:
    if not config.get("dry"):
        return
    try:
        boolean("dry", config.dry)
        from cmr_runner.commands.preview import preview

        text, code = preview(config, sweep=sweep)
    except Exception as error:
        raise PastHydra(error) from error
    if os.environ.get("RANK", "0") == "0":  # one process of torchrun's says it
        say(text)
    raise SystemExit(code)


def _tame(config: DictConfig, journal: Journal) -> None:
    """What a launcher does by default and its own settings cannot change."""
    launcher = config.hydra.runtime.choices["hydra/launcher"]
    sweeper = config.hydra.sweeper
    if launcher == "submitit_local" and "max_batch_size" in sweeper and sweeper.max_batch_size is None:
        sweeper.max_batch_size = parallel_jobs(config.threads)  # else all jobs start at once
    if launcher == "ray":
        os.environ.setdefault("RAY_DEDUP_LOGS", "0")  # jobs print equal lines, each of which counts
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        from cmr_runner.commands.ray_jobs import RayJobs

        RayJobs(journal).tame()
    if launcher.startswith("submitit_"):
        from cmr_runner.commands.submission import Submissions, leave_text

        Submissions(journal).tame()
        if launcher == "submitit_slurm":  # its jobs need no process on the login node
            STOP.leave_at(LEAVING, f"the jobs are asked to stop at their next step ({leave_text()} instead)")


def report_text(outcomes: dict[int, Outcome]) -> str:
    """The end of a sweep: the results, best first; one line per job; the counts and the place of the files."""
    rows = []
    for number, outcome in sorted(outcomes.items()):
        name = Path(outcome.directory).name
        rows.append([str(number), _word(outcome), f"{outcome.seconds:.1f}", name, outcome.reason])
    counts = Counter(_word(outcome) for outcome in outcomes.values())
    summary = ", ".join(f"{count} {kind}" for kind, count in counts.most_common())
    table = aligned(["job", "outcome", "seconds", "run", "reason"], rows, right={"job", "seconds"})
    places = sorted({str(shown_path(Path(outcome.directory).parent)) for outcome in outcomes.values()})
    files = f"; files: {', '.join(places)}" if places else ""
    results = results_text([Path(outcome.directory) for outcome in outcomes.values()])
    return f"{results}{table}\n{len(outcomes)} jobs: {summary or 'none started'}{files}"


def results_text(directories: Sequence[Path]) -> str:
    """Final accuracy, κ and seconds of each group of runs, the best first; empty where none is complete."""
    runs = []
    for directory in dict.fromkeys(directories):  # jobs that differ in nothing that decides a run share one
        with contextlib.suppress(DamagedRun):  # a job that failed before its run began
            runs.append(read_run(directory))
    tell_seeds_apart(runs)
    groups = sorted((group for group in group_runs(runs) if group.n), key=merit, reverse=True)
    rows = [[group.label, str(group.n), *_results(group, headline(groups))] for group in groups]
    if not rows:
        return ""
    head = ["results", "n", headline(groups).heading, KAPPA.heading, "seconds"]
    return f"{aligned(head, rows, right=head[1:])}\n\n"


def shown_path(path: Path) -> Path:
    """As a person would write it: relative where it is below the current directory."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def _results(group: Group, judged: Quantity) -> list[str]:
    cells = [cell.text for cell in final_cells(group, (judged, KAPPA))]
    return [*cells, f"{sum(map(seconds, group.complete)) / group.n:.1f}"]


def _word(outcome: Outcome) -> str:
    """A value the user got wrong is, among other jobs, one more that failed."""
    return "failed" if outcome.kind == "invalid" else outcome.kind


def sweep_exit_code(outcomes: dict[int, Outcome]) -> int:
    if any(outcome.kind in FAILURE for outcome in outcomes.values()):
        return 1
    stopped = any(outcome.kind in ("interrupted", "not started") for outcome in outcomes.values())
    return 128 + (STOP.signal or 2) if stopped else 0
