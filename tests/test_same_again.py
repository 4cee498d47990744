"""scripts/same_again.py: a committed run is run again and compared digit by digit."""

import subprocess
import sys
from pathlib import Path

from run_process import call, environment, only_directory

SCRIPT = Path(__file__).parents[1] / "scripts" / "same_again.py"


def same_again(run: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), str(run)]
    return subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)


def test_an_untouched_run_is_equal_and_a_changed_digit_is_named(tmp_path: Path) -> None:
    assert call(tmp_path, "regularizer.lam=0.3", "trainer.epochs=2", "seed=3").returncode == 0
    run = only_directory(tmp_path)
    done = same_again(run)
    assert (done.returncode, done.stdout) == (0, f"equal: single/{run.name}\n"), done.stderr

    lines = (run / "layers.csv").read_text().splitlines(keepends=True)
    epoch, layer, rows, *rest = lines[-1].split(",")
    (run / "layers.csv").write_text("".join([*lines[:-1], ",".join([epoch, layer, f"{rows}1", *rest])]))
    done = same_again(run)
    assert done.returncode == 1
    assert done.stdout == f"layers.csv, epoch 2: rows is {rows}, not {rows}1: single/{run.name}\n"
