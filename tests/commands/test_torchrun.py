"""One run over two processes, by the real torchrun."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from run_process import FROZEN, PATIENCE, Instant, run, stands_still, when

pytestmark = pytest.mark.slow

WORDS = (
    "dataset=digits",
    "model.depth=4",
    "model.width=40",
    "init=glorot_uniform",
    "trainer.batch_size=50",  # the last batch of 1442 examples is 42: an even share of neither
)


def launch(root: Path, *words: str, processes: int = 2, freeze: Instant | None = None) -> subprocess.Popen[str]:
    """One run in `root`; with `freeze` its first process, which writes the files, stands still at that instant."""
    torchrun = ["-m", "torch.distributed.run", f"--nproc-per-node={processes}", "--standalone"]
    program = [str(FROZEN), *map(str, freeze)] if freeze else ["-m", "cmr_runner"]
    return subprocess.Popen(
        [sys.executable, *(torchrun if processes > 1 else ()), *program, *WORDS, *words, f"output_root={root}"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finished(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, output
    return output


def children(pid: int) -> list[int]:
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False).stdout
    return list(map(int, found.split()))


def rows(root: Path) -> list[dict[str, float]]:
    (path,) = root.glob("single/*/metrics.csv")
    with open(path, newline="") as file:
        return [{key: float(value or "nan") for key, value in row.items()} for row in csv.DictReader(file)]


@pytest.mark.parametrize("regularizer", ["cmr", "spectral_norm_cmr", "cmr_learned"])
def test_two_processes_equal_one_on_the_same_global_batch(tmp_path: Path, regularizer: str) -> None:
    # The exact engine: what `fast` draws at random depends on which layers are together in a batch.
    words = (f"regularizer={regularizer}", "regularizer.engine=exact", "trainer.epochs=1")
    finished(launch(tmp_path / "1", *words, processes=1))
    together = finished(launch(tmp_path / "2", *words))
    assert together.count("epoch 1/1") == 1  # said once, by the first process
    for one, two in zip(rows(tmp_path / "1"), rows(tmp_path / "2"), strict=True):
        # Sums in another order: float32 rounding, grown over 29 Adam steps.
        for column in ("train_loss", "test_loss", "grad_norm", "grad_norm_task", "kappa_mean", "rho_cond_mean"):
            assert two[column] == pytest.approx(one[column], rel=2e-4, nan_ok=True), column
        assert abs(two["test_accuracy"] - one["test_accuracy"]) <= 0.006  # two of 355 images


@pytest.mark.parametrize("killed", ["all", "one"])
def test_a_killed_run_of_two_processes_goes_on_bit_for_bit(tmp_path: Path, killed: str) -> None:
    words = ("trainer.epochs=6",)
    finished(launch(tmp_path / "whole", *words))
    process = launch(tmp_path / "killed", *words, freeze=Instant("metrics.csv", 3))
    assert when(process, lambda: any(map(stands_still, children(process.pid))))
    workers = children(process.pid)
    (frozen,) = filter(stands_still, workers)
    assert len(rows(tmp_path / "killed")) == 2
    if killed == "all":
        for pid in [process.pid, *workers]:  # torchrun's workers lead sessions of their own
            os.kill(pid, signal.SIGKILL)
        process.communicate()
    else:
        (other,) = set(workers) - {frozen}
        os.kill(other, signal.SIGKILL)
        os.kill(frozen, signal.SIGCONT)
        process.communicate(timeout=PATIENCE)
        assert process.returncode != 0
        assert not Path(f"/proc/{frozen}").exists()  # it does not wait for the dead one
    (record,) = (tmp_path / "killed").glob("single/*/run.json")
    assert json.loads(record.read_text())["status"] in (
        ("running",) if killed == "all" else ("running", "failed", "interrupted")
    )

    finished(launch(tmp_path / "killed", *words))
    timed = ("seconds", "spectral_seconds")
    strip = [
        [{k: repr(v) for k, v in row.items() if k not in timed} for row in rows(tmp_path / name)]
        for name in ("whole", "killed")
    ]
    assert strip[0] == strip[1]


def test_a_run_of_two_processes_is_not_taken_over_by_one(tmp_path: Path) -> None:
    finished(launch(tmp_path / "a", "trainer.epochs=1"))
    (path,) = (tmp_path / "a").glob("single/*/run.json")
    record = json.loads(path.read_text())
    assert record["provenance"]["processes"] == 2
    path.write_text(json.dumps({**record, "status": "interrupted"}))
    process = launch(tmp_path / "a", "trainer.epochs=1", processes=1)
    output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 2
    assert re.search(r"the checkpoint needs 2 processes, got 1", output)
    assert (path.parent / "checkpoint.pt").is_file()  # not set aside: it is good


def test_sweeps_are_refused(tmp_path: Path) -> None:
    done = run(tmp_path, "-m", "seed=0,1", WORLD_SIZE="2", RANK="0")
    assert done.returncode == 1
    assert "torchrun trains one run" in done.stdout
