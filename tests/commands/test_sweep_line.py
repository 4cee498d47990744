"""The live line of a sweep: on a terminal, and nowhere else."""

import contextlib
import os
import pty
import re
import select
import subprocess
from pathlib import Path

import pytest
from run_process import PATIENCE, command, environment, run, table

from cmr_runner.commands.sweep_line import line_text
from cmr_runner.runs.outcome import Outcome


def done(*seconds: float, kind="completed") -> dict[int, Outcome]:
    return {number: Outcome(kind, "", seconds=each) for number, each in enumerate(seconds)}


def test_the_line_counts_jobs_and_takes_those_to_come_for_as_long_as_those_done() -> None:
    assert line_text({}, [1.0], 3, 1) == "sweep: 0 of 3 done, 1 running, 2 left"
    assert line_text(done(100, 200), [50.0], 5, 1) == "sweep: 2 of 5 done, 1 running, 2 left, about 7 min left"
    assert line_text(done(100, 200), [50.0, 500.0], 6, 2) == "sweep: 2 of 6 done, 2 running, 2 left, about 3 min left"


def test_jobs_that_were_done_before_tell_nothing_of_the_time() -> None:
    assert line_text(done(0.1, kind="skipped"), [], 2, 1) == "sweep: 1 of 2 done, 0 running, 1 left"


def test_of_a_sweeper_that_decides_as_it_goes_only_what_happened_is_said() -> None:
    assert line_text(done(5), [1.0], None, 1) == "sweep: 1 done, 1 running"


def on_a_terminal(cwd: Path, *words: str) -> str:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command(*words), cwd=cwd, env=environment(COLUMNS="120"), stdout=theirs, stderr=theirs)
    os.close(theirs)
    said = b""
    with contextlib.suppress(OSError):  # the last process has closed the terminal
        while select.select([ours], [], [], 0.1)[0] or process.poll() is None:
            if select.select([ours], [], [], 0)[0]:
                said += os.read(ours, 65536)
    os.close(ours)
    assert process.wait(PATIENCE) == 0, said.decode()
    return said.decode()


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["basic", "submitit_local"])
def test_a_sweep_on_a_terminal_shows_the_line_and_leaves_nothing_of_it(launcher: str, tmp_path: Path) -> None:
    said = on_a_terminal(tmp_path, "-m", "trainer.epochs=5", "seed=0,1", f"hydra/launcher={launcher}")
    assert re.search(r"sweep: 0 of 2 done, \d running, \d left", said)
    end = said[said.rindex("job  outcome") :]
    assert "sweep:" not in end
    assert table(said) == {0: "completed", 1: "completed"}


@pytest.mark.slow
def test_a_sweep_into_a_pipe_shows_no_line(tmp_path: Path) -> None:
    said = run(tmp_path, "-m", "trainer.epochs=1", "seed=0,1", "hydra/launcher=submitit_local")
    assert said.returncode == 0
    assert "sweep:" not in said.stdout + said.stderr
    assert "\x1b" not in said.stdout + said.stderr
