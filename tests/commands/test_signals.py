"""Signals and closed streams end a run at its next step, without a traceback; nothing else is the end of it."""

import errno
import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from run_process import PATIENCE, command, directories, environment, only_directory, record, start

from cmr_runner.commands import progress
from cmr_runner.commands.signals import SIGNALS, StopRequests

STARTED_BY_THE_SIGNAL = """
import signal, sys
class Import:
    def find_spec(self, name, path, target=None):
        if name == "hydra":
            signal.raise_signal(signal.Signals[sys.argv.pop(1)])
sys.meta_path.insert(0, Import())
from cmr_runner.commands.entry import main
main()
"""


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_during_the_imports_is_one_line(number: signal.Signals, tmp_path: Path) -> None:
    words = [sys.executable, "-c", STARTED_BY_THE_SIGNAL, number.name, f"output_root={tmp_path}"]
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stderr) == (128 + number, "cmr-run: interrupted\n")
    assert not list(tmp_path.iterdir())


def test_while_a_run_is_written_no_number_of_signals_does_more_than_ask_for_a_stop() -> None:
    stop = StopRequests()
    with stop.listening():
        with stop.graceful():
            for number in (signal.SIGINT, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                signal.raise_signal(number)
            assert stop.signal == signal.SIGINT
        with pytest.raises(KeyboardInterrupt):  # nothing to finish any more
            signal.raise_signal(signal.SIGINT)


def test_a_second_interrupt_ends_a_sweep_at_once_between_its_runs() -> None:
    stop = StopRequests()
    stop.hold()
    with stop.listening():
        signal.raise_signal(signal.SIGINT)
        with stop.graceful():
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_a_signal_that_nohup_has_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        stop = StopRequests()
        with stop.listening():
            signal.raise_signal(signal.SIGHUP)
        assert not stop.requested()
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_terminal_that_is_closed_does_not_break_the_live_display(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(io.StringIO):
        def isatty(self) -> bool:
            return True

        def write(self, text: str) -> int:
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(sys, "stdout", Gone())
    bar = progress._bar()
    with pytest.raises(OSError, match="Input/output"):
        sys.stdout.write("a line")
    bar.start()
    task = bar.add_task("", total=2, figures="", epoch="epoch 1/1")
    bar.update(task, completed=1, refresh=True)
    bar.console.print("epoch 1/1")
    bar.stop()
    assert bar.tasks[0].completed == 1


@pytest.mark.slow
def test_a_run_without_standard_output_is_completed(tmp_path: Path) -> None:
    done = subprocess.run(
        command("trainer.epochs=1"),
        cwd=tmp_path,
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: os.close(1),
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert record(only_directory(tmp_path))["status"] == "completed"


@pytest.mark.slow
@pytest.mark.parametrize("words", [("seed=0",), ("-m", "seed=0,1")])
def test_a_reader_that_goes_away_interrupts_the_run(words: tuple[str, ...], tmp_path: Path) -> None:
    process = start(tmp_path, "trainer.epochs=500", *words)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    (line,) = process.stderr.read().splitlines()
    process.stderr.close()
    assert process.wait(PATIENCE) == 128 + signal.SIGPIPE
    assert line.startswith("interrupted; go on with: python -m cmr_runner ")
    assert [record(directory)["status"] for directory in directories(tmp_path)] == ["interrupted"]
