"""Throughput of an 8-job sweep: one job after the other, against `hydra/launcher=joblib`.

    python scripts/bench_sweep.py [--jobs 8] [--epochs 2]

Prints the seconds of both, their ratio, and whether the CSV files are equal (they must be, at equal threads).
Start-up of the processes counts: it is what a user waits for.
"""

import argparse
import csv
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from cmr_runner.commands.settings import cores
from cmr_runner.runs.columns import LAYERS, METRICS, TIME_COLUMNS

BUSY = 0.5  # load that other work may make


@dataclass(frozen=True)
class Cost:
    wall: float
    cpu: float  # of the sweep's processes, all together
    load: float  # of the machine when the sweep began


def children_cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def sweep_cost(root: Path, jobs: int, words: list[str], launcher: str) -> Cost:
    seeds = ",".join(str(seed) for seed in range(jobs))
    command = [sys.executable, "-m", "cmr_runner", "-m", f"hydra/launcher={launcher}", f"seed={seeds}", *words]
    load, cpu, began = os.getloadavg()[0], children_cpu(), time.perf_counter()
    done = subprocess.run(
        [*command, f"output_root={root}"], env=os.environ, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{launcher}: {done.stdout}\n{done.stderr}")
    return Cost(time.perf_counter() - began, children_cpu() - cpu, load)


def records(root: Path) -> dict[str, object]:
    """Every run's CSV files, their time columns aside, by the run's name."""
    found: dict[str, object] = {}
    for path in sorted(root.glob("*/*/run.json")):
        with open(path.parent / METRICS, newline="") as file:
            rows = [{k: v for k, v in row.items() if k not in TIME_COLUMNS} for row in csv.DictReader(file)]
        found[path.parent.name] = (rows, (path.parent / LAYERS).read_bytes())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("settings", nargs="*", help="further key=value settings of cmr-run")
    arguments = parser.parse_args()
    words = ["dataset=digits", "model.depth=8", "model.width=128", f"trainer.epochs={arguments.epochs}"]
    words += ["threads=1", *arguments.settings]
    with tempfile.TemporaryDirectory() as scratch:
        serial_root, parallel_root = Path(scratch, "serial"), Path(scratch, "parallel")
        serial = sweep_cost(serial_root, arguments.jobs, words, "basic")
        parallel = sweep_cost(parallel_root, arguments.jobs, words, "joblib")
        equal = records(serial_root) == records(parallel_root)
    print(f"cores {cores()}, jobs {arguments.jobs}, {' '.join(words)}")
    for name, cost in (("one after the other", serial), ("joblib", parallel)):
        print(f"{name:20s} {cost.wall:7.1f} s, {cost.cpu:7.1f} s of CPU, load before {cost.load:.1f}")
    ratio = serial.wall / parallel.wall
    print(f"{'ratio':20s} {ratio:7.2f}")
    print(f"{'CSV files equal':20s} {equal!s:>7s}")
    # The first sweep itself leaves a load of about 1 behind.
    if serial.load > BUSY or parallel.load > BUSY + 1 or ratio > cores():
        print("other work shared the cores: the ratio says nothing, measure again on a quiet machine")
    sys.exit(0 if equal else 1)


if __name__ == "__main__":
    main()
