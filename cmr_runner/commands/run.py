"""cmr-run: the shell around one job or a sweep of them. Hydra composes, `job` runs, `main` says how it ended."""

from __future__ import annotations

import contextlib
import itertools
import os
import shlex
import sys
import traceback
import warnings
from collections.abc import Callable
from concurrent.futures import BrokenExecutor
from functools import partial
from pathlib import Path
from signal import SIGPIPE
from typing import TYPE_CHECKING, cast

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from cmr_runner.commands import composition, mistakes, sweep_line
from cmr_runner.commands.execution import FULL, Job, execute, failure_text
from cmr_runner.commands.journal import Journal, StopCheck, stopped_outcome
from cmr_runner.commands.places import check_below, output_root
from cmr_runner.commands.progress import Progress
from cmr_runner.commands.settings import Mistake, settings_of
from cmr_runner.commands.signals import STOP
from cmr_runner.commands.streams import discard, say
from cmr_runner.commands.sweep import PastHydra, SweepCallback, report_text, sweep_exit_code
from cmr_runner.commands.torchrun import end_process, execute_together, processes
from cmr_runner.runs.directory import RunDirectory
from cmr_runner.runs.identity import deciding_config
from cmr_runner.runs.outcome import SUCCESS, Outcome
from cmr_runner.runs.provenance import shell_command
from cmr_runner.tracking.background import Background

if TYPE_CHECKING:
    from cmr_runner.distributed import Ranks
    from cmr_runner.training.loop import Trainer

COMMAND_VARIABLE = "CMR_RUNNER_COMMAND"

composition.register_resolvers()
# conf/hydra/launcher/*.yaml extend the plugins' own settings by bearing their names, which Hydra 1.3 warns about.
warnings.filterwarnings("ignore", message=r"(?s).*is validated against ConfigStore schema with the same name")

_single: list[Outcome] = []


def job(cfg: DictConfig) -> float:
    """Hydra's task function: one job, whatever its ending; a sweep goes on past it. Returns the run's objective, for
    sweepers that optimise."""
    node = cast(DictConfig, HydraConfig.get())
    journal = Journal.current()
    directory = Path(node.runtime.output_dir)
    ended = journal.start(node.job.num, directory) if journal is not None else None
    if ended is not None:
        return objective(ended)
    joblib = node.runtime.choices["hydra/launcher"] == "joblib"
    should_stop = StopCheck(journal, journal.pid if journal is not None and joblib else None)
    with STOP.listening():
        try:
            outcome = _held_back(cfg, journal, directory) or run_job(cfg, node, should_stop)
        except Mistake as error:
            outcome = Outcome("invalid", str(directory), str(error))
        except Exception as error:
            if cfg.get("debug"):
                traceback.print_exc()
            outcome = Outcome("failed", str(directory), failure_text(error, directory))
        except SystemExit:  # submitit at a time limit or a preemption, once it has queued the job again
            if journal is not None:
                journal.queued_again(node.job.num)
            raise
    _remove_if_empty(directory)
    if journal is None:
        _single.append(outcome)
    else:
        journal.report(node.job.num, outcome)
        reason = f" ({outcome.reason})" if outcome.reason else ""
        say(f"#{node.job.num} {directory.name}: {outcome.kind}{reason}")
    if should_stop.orphaned():
        os._exit(1)  # nobody is left to take the outcome, and joblib's worker would idle on for minutes
    return objective(outcome)


def objective(outcome: Outcome) -> float:
    """Accuracy after the last epoch: on the validation part where there is one, else on the test set. nan for a run
    that has not succeeded."""
    final = (RunDirectory(Path(outcome.directory)).read() or {}).get("final") or {}
    defined = [final[name] for name in ("val_accuracy", "test_accuracy") if final.get(name) is not None]
    return float(defined[0]) if outcome.kind in SUCCESS and defined else float("nan")


def run_job(cfg: DictConfig, node: DictConfig, should_stop: Callable[[], bool] = STOP.requested) -> Outcome:
    """The job that `cfg` describes, in the directory that Hydra's `node` says."""
    launcher = node.runtime.choices["hydra/launcher"]
    alone = launcher == "basic"
    if not alone and node.mode != RunMode.MULTIRUN:
        raise Mistake(f"hydra/launcher={launcher} is for sweeps: add -m")
    directory = Path(node.runtime.output_dir)
    # The working directory may be the run's own by now (hydra.job.chdir).
    check_below(Path(node.runtime.cwd) / output_root(cfg), "hydra.sweep.subdir", directory)
    config = composition.plain_config(cfg)
    settings = settings_of(config, alone=alone and processes() == 1)
    if settings.dry:
        raise Mistake("dry=true is for a whole command, not for one job of a sweep")
    identity = composition.identity_of(cfg, node)
    prefix = "" if alone else f"[{node.job.num}] "
    sweep = sweep_line.SweepLine.current
    progress = Progress(settings.progress, prefix=prefix, alone=alone, debug=settings.debug, sweep=sweep)
    task = Job(
        settings=settings,
        identity=identity,
        choices=composition.job_choices(node),
        config=deciding_config(config),
        directory=directory,
        command=os.environ.get(COMMAND_VARIABLE) or shell_command(),
        notes=_hydra_record(cfg, node),
        trackers=_trackers(cfg, progress),
    )

    def build(device: str, ranks: Ranks | None = None) -> Trainer:
        from cmr_runner.commands.construction import build_trainer, find_modules

        find_modules(node)
        return build_trainer(cfg, settings, device, ranks)

    if processes() > 1:
        return execute_together(task, build, progress, should_stop)
    return execute(task, build, progress, should_stop)


def _trackers(cfg: DictConfig, progress: Progress) -> list[Background]:
    """Those of the group `logger`; each is made in its own thread, where it may fail."""
    chosen = cfg.get("logger") or {}
    return [
        Background(str(name), partial(hydra.utils.instantiate, chosen[name]), progress.warn)
        for name in chosen
        if os.environ.get("RANK", "0") == "0"
    ]


def _held_back(cfg: DictConfig, journal: Journal | None, directory: Path) -> Outcome | None:
    """Why a job of a sweep is not started, if it is not."""
    if journal is None:
        return None
    if processes() > 1:
        raise Mistake("-m: torchrun trains one run; sweep without torchrun, or name one configuration")
    if STOP.requested() or journal.stop_requested():
        return stopped_outcome(directory, "the sweep was interrupted")
    if cfg.get("on_failure") == "stop" and journal.failed():
        return Outcome("not started", str(directory), "an earlier job failed and on_failure=stop")
    return None


def _hydra_record(cfg: DictConfig, node: DictConfig) -> dict[str, str]:
    """Hydra's own record of the job. Hydra would write it itself, before the lock and over that of another run."""
    return {
        "config.yaml": OmegaConf.to_yaml(cfg),
        "hydra.yaml": OmegaConf.to_yaml(OmegaConf.create({"hydra": node})),
        "overrides.yaml": OmegaConf.to_yaml(node.overrides.task),
    }


def _remove_if_empty(directory: Path) -> None:
    """Hydra makes the directory before the job knows whether it will write anything."""
    with contextlib.suppress(OSError):
        directory.rmdir()


def main() -> None:
    code = _main(sys.argv[1:])
    if processes() > 1:
        end_process(code)
    sys.exit(code)


def _main(arguments: list[str]) -> int:
    unknown = mistakes.unknown_option(arguments)
    if unknown:
        return _complain(unknown, 2)
    overrides = [argument for argument in arguments if not argument.startswith("-")]
    traces = os.environ.get("HYDRA_FULL_ERROR") == "1" or any(map(_is_set("debug"), overrides))
    # Hydra prints errors over several lines and exits; with this it raises them, and they are explained here.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    os.environ[COMMAND_VARIABLE] = shell_command()
    # Threads that spin while they wait make a run many times slower as soon as a core is shared; those that never do
    # take twice the time alone. So a little where libgomp lets one say how much (a step's operations are that close).
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    _single.clear()
    STOP.reset()
    sys.argv[1:] = mistakes.settings_last(arguments)
    trouble = 0
    with STOP.listening():
        try:
            _run_hydra()
        except KeyboardInterrupt:
            trouble = 128 + (STOP.signal or 2)
        except (Exception, PastHydra) as error:
            if traces:
                traceback.print_exc()
            trouble = _explain(error.error if isinstance(error, PastHydra) else error, overrides)
    return _conclude(trouble)


def _run_hydra() -> None:
    """Compose and run what sys.argv says. A worker of joblib's that was killed takes the others with it: they are
    started again, until all jobs have an outcome or no worker's death tells which job it was."""
    ended = -1
    while True:
        try:
            hydra.main(
                config_path=str(composition.config_directory()), config_name=composition.CONFIG_NAME, version_base="1.3"
            )(job)()
            return
        except BrokenExecutor:
            journal = Journal.current()
            if SweepCallback.watch is not None:
                SweepCallback.watch.wait_for_report()
            if journal is None or len(journal.outcomes()) <= ended:
                raise
            ended = len(journal.outcomes())
            for number in journal.in_flight():  # joblib ended their processes too
                journal.queued_again(number)
            say("a worker process was killed; the other jobs go on")


def _explain(error: Exception, overrides: list[str]) -> int:
    """Say in one line what stopped Hydra itself, and the exit code for it."""
    if isinstance(error, BrokenPipeError):  # whoever read its --help has gone: there is no one to tell
        discard(sys.stdout.fileno())
        return 128 + SIGPIPE
    line = mistakes.explain(error, overrides)
    if line:
        return _complain(line, 2)
    if isinstance(error, OSError):
        return _complain(*_unwritable(error))
    return _complain(f"{type(error).__name__}: {' '.join(str(error).split())}", 1)


def _unwritable(error: OSError) -> tuple[str, int]:
    """Hydra could not make a directory, before any job: the place is wrong unless it is full."""
    if error.errno in FULL:
        return failure_text(error, Path(error.filename or ".")), 1
    return f"output_root: cannot write {error.filename}: {error.strerror}", 2


def _conclude(trouble: int) -> int:
    """Print how it ended, the command to go on with last, and give the exit code."""
    sweep_line.end()
    journal = Journal.current()
    if journal is not None:
        by_number = journal.outcomes() | (journal.left() if STOP.left else {})
        outcomes = list(by_number.values())
        say("\n" + report_text(by_number))
        code = trouble or sweep_exit_code(by_number)
        journal.close()
    else:
        outcomes = _single[-1:]
        code = trouble or (_single_ending(outcomes[0]) if outcomes else 0)
    unfinished = any(outcome.kind in ("interrupted", "not started") for outcome in outcomes)
    stopped = STOP.requested() or any(outcome.kind == "interrupted" for outcome in outcomes)
    if STOP.left:
        say(f"the jobs go on in the cluster; what became of them says, later: {command_to_go_on()}")
    elif stopped and (unfinished or not outcomes):
        # On the stream that is left, if the reader of the other has gone.
        say(f"interrupted; go on with: {command_to_go_on()}", sys.stderr if STOP.signal == SIGPIPE else None)
    elif unfinished:
        say(f"stopped after a failed job (on_failure=stop); go on with: {command_to_go_on()}")
    return code


def _single_ending(outcome: Outcome) -> int:
    if os.environ.get("RANK", "0") != "0":
        return outcome.exit_code  # the first process says it
    if outcome.kind in ("skipped", "stopped", "interrupted"):
        say(f"{outcome.directory}: {outcome.reason}")
    elif outcome.exit_code:
        _complain(outcome.reason, outcome.exit_code)
    return outcome.exit_code


def command_to_go_on() -> str:
    """The command again, but for force=true, which would start over."""
    words = shlex.split(os.environ.get(COMMAND_VARIABLE) or shell_command())
    return shlex.join(itertools.filterfalse(_is_set("force"), words))


def _is_set(key: str) -> Callable[[str], bool]:
    """Whether a word of the command sets `key` to true, as Hydra reads it."""
    return lambda word: word.lstrip("+").lower() == f"{key}=true"


def _complain(line: str, code: int) -> int:
    say(f"cmr-run: {line}", sys.stderr)
    return code


if __name__ == "__main__":
    main()
