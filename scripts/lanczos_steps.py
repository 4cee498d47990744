"""The κ-stress run's first epochs with other numbers of Lanczos steps in the `fast` engine, beside `exact`.

    ATEN_CPU_CAPABILITY=avx2 python scripts/lanczos_steps.py --steps 16 64 --seeds 0 1 2

Prints, for each, in how many of an epoch's steps the cap acted, the layers' median σ_max and mean κ after it, and the
seconds spent on spectra. A run is kept under --output/<steps> and not made again.
"""

import argparse
import csv
import subprocess
import sys
from pathlib import Path
from statistics import median

# Not a setting of cmr-run: results of another number of steps would be another engine's.
PROGRAM = """
import sys
from cmr_runner.commands.run import main
from cmr_runner.spectral.engines.fast import FastEngine
FastEngine.__init__.__kwdefaults__["steps"] = int(sys.argv.pop(1))
main()
"""
EXACT = "exact"


def trained(output: Path, steps: str, seed: int, epochs: int) -> Path:
    """The run directory of one network, trained if it is not there."""
    root = output / steps
    words = ["regularizer=cmr", "init=kappa_stress", f"seed={seed}", f"trainer.epochs={epochs}", "threads=1"]
    if steps == EXACT:
        command = [sys.executable, "-m", "cmr_runner", "regularizer.engine=exact"]
    else:
        command = [sys.executable, "-c", PROGRAM, steps]
    subprocess.run([*command, *words, f"output_root={root}", "progress=none"], stdout=subprocess.DEVNULL, check=True)
    (directory,) = root.glob(f"single/*-seed{seed}-*")
    return directory


def rows(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", nargs="+", default=["16", "64", EXACT], help=f"numbers, or {EXACT}")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--output", type=Path, default=Path("outputs/lanczos_steps"))
    arguments = parser.parse_args()
    print("Lanczos steps  seed  epoch  cap acts in  median σ_max  mean κ  spectral s")
    for steps in arguments.steps:
        for seed in arguments.seeds:
            directory = trained(arguments.output, steps, seed, arguments.epochs)
            layers = rows(directory / "layers.csv")
            for row in rows(directory / "metrics.csv")[1:]:
                sigma = median(float(layer["sigma_max"]) for layer in layers if layer["epoch"] == row["epoch"])
                cap, kappa = 100 * float(row["cap_active_fraction"]), float(row["kappa_mean"])
                cost = float(row["spectral_seconds"])
                start = f"{steps:>13s} {seed:5d} {row['epoch']:>6s}"
                print(f"{start} {cap:10.1f} % {sigma:13.3f} {kappa:7.3f} {cost:11.1f}", flush=True)


if __name__ == "__main__":
    main()
