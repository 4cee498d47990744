"""cmr-plot and cmr-report over the committed runs alone, and with a large sweep beside them.

    python scripts/bench_figures.py [--runs 500] [--rounds 2] [--only list,report]

The sweep is one committed run, copied under other values of lambda, rho_spec and seed, until there are that many runs.
Prints the seconds, of the first round and the least of all, and the largest process of each command at both sizes, in
turn, and the ratio of the least.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cmr_runner.runs.integrity import DIGEST, record_digest

ROOT = Path(__file__).resolve().parents[1]
SEEDS = 5
COMMANDS = {"plot": ("plot",), "plot again": ("plot",), "list": ("plot", "--list"), "report": ("report",)}
# The command runs in a process of this one's, which then knows its memory and that of its own workers.
PROGRAM = """
import resource, sys
from cmr_runner.commands import plot, report
code = {"plot": plot, "report": report}[sys.argv[1]].main(sys.argv[2:])
whose = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
print(max(resource.getrusage(who).ru_maxrss for who in whose) / 1024, file=sys.stderr)
sys.exit(code)
"""


def write_sweep(source: Path, root: Path, runs: int) -> None:
    """`runs` copies of `source`: a square of lambda and rho_spec, five seeds each."""
    record = json.loads((source / "run.json").read_text())
    side = round((runs / SEEDS) ** 0.5)
    for number in range(runs):
        cell, seed = divmod(number, SEEDS)
        name = f"copy{number}"
        swept = {"lam": (cell % side + 1) / 100, "rho_spec": (cell // side + 1) / 10}
        directory = Path(shutil.copytree(source, root / "large" / name))
        copy = record | {
            "identity": record["identity"] | {"experiment": "large", "hash": f"{number:08x}", "name": name},
            "config": record["config"] | {"seed": seed, "regularizer": record["config"]["regularizer"] | swept},
        }
        (directory / "run.json").write_text(json.dumps(copy | {DIGEST: record_digest(copy)}))


def cost(command: str, root: Path) -> tuple[float, float]:
    """Seconds and megabytes of one command over `root`; of `plot` with nothing drawn before."""
    if command == "plot":
        shutil.rmtree(root / "figures", ignore_errors=True)
    module, *words = COMMANDS[command]
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, module, str(root), *words], capture_output=True, text=True, check=False
    )
    seconds = time.perf_counter() - began
    if done.returncode or "left out" in done.stderr:
        sys.exit(f"cmr-{module}: {done.stdout}\n{done.stderr}")
    return seconds, float(done.stderr.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", default=",".join(COMMANDS), help="comma-separated, of %(default)s")
    arguments = parser.parse_args()
    commands = arguments.only.split(",")
    if unknown := [command for command in commands if command not in COMMANDS]:
        parser.error(f"argument --only: {unknown[0]} is none of {', '.join(COMMANDS)}")
    committed = ROOT / "outputs" / "paper"
    few = len(list(committed.glob("*/*/run.json")))
    if arguments.runs <= few:
        parser.error(f"--runs must be more than the {few} committed runs, got {arguments.runs}")
    sizes = (few, arguments.runs)
    with tempfile.TemporaryDirectory() as scratch:
        for size in sizes:
            shutil.copytree(committed, Path(scratch, str(size)))
        write_sweep(
            min((committed / "sweep_lambda_rho").iterdir()), Path(scratch, str(arguments.runs)), arguments.runs - few
        )
        found: dict[tuple[str, int], list[tuple[float, float]]] = {}
        for _ in range(arguments.rounds):
            for command in commands:
                for size in sizes:
                    found.setdefault((command, size), []).append(cost(command, Path(scratch, str(size))))
    for command in commands:
        least = {size: min(seconds for seconds, _ in found[command, size]) for size in sizes}
        for size in sizes:
            memory = max(megabytes for _, megabytes in found[command, size])
            first = found[command, size][0][0]
            print(f"{command:10s} {size:5d} runs {first:7.1f} s first, {least[size]:7.1f} s least {memory:6.0f} MB")
        print(f"{command:10s} {'ratio':>10s} {least[sizes[1]] / least[sizes[0]]:7.2f} x")


if __name__ == "__main__":
    main()
