"""The κ-stress run's first epochs with other numbers of Lanczos steps at the edges, beside `exact`.

    ATEN_CPU_CAPABILITY=avx2 python scripts/lanczos_steps.py [--engine fast] --steps 16 64 --seeds 0 1 2

Prints, for each, in how many of an epoch's steps the cap acted, the layers' median σ_max and mean κ after it, and the
seconds spent on spectra. A run is kept under --output/<engine>-<steps>-<epochs> and not made again.
"""

import argparse
import subprocess
import sys
from pathlib import Path

import numpy as np

from cmr_runner.results.reading import read_columns
from cmr_runner.runs.columns import LAYERS, METRICS

EXACT = "exact"


def engine_steps(text: str) -> str:
    return text if text == EXACT else str(int(text))


def trained(output: Path, engine: str, steps: str, seed: int, epochs: int) -> Path:
    """The run directory of one network, trained if it is not there."""
    root = output / f"{engine}-{steps}-{epochs}"
    words = ["regularizer=cmr", "init=kappa_stress", f"seed={seed}", f"trainer.epochs={epochs}", "threads=1"]
    words += ["regularizer.engine=exact"] if steps == EXACT else [f"regularizer.engine={{name:{engine},steps:{steps}}}"]
    words += [f"output_root={root}", "progress=none"]
    command = [sys.executable, "-m", "cmr_runner", *words]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)  # what is wrong it says itself
    if done.returncode:
        sys.exit(done.returncode)
    (directory,) = root.glob(f"single/*-seed{seed}-*")
    return directory


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--steps", nargs="+", type=engine_steps, default=["16", "64", EXACT], help=f"numbers, or {EXACT}"
    )
    parser.add_argument("--engine", default="fast", help="whose `steps`: fast, stochastic, staggered or auto")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--output", type=Path, default=Path("outputs/lanczos_steps"))
    arguments = parser.parse_args()
    print("Lanczos steps  seed  epoch  cap acts in  median σ_max  mean κ  spectral s")
    for steps in arguments.steps:
        for seed in arguments.seeds:
            directory = trained(arguments.output, arguments.engine, steps, seed, arguments.epochs)
            metrics, layers = read_columns(directory / METRICS), read_columns(directory / LAYERS)
            for i in range(1, len(metrics)):
                epoch = metrics["epoch"][i]
                sigma = np.median(layers["sigma_max"][layers["epoch"] == epoch])
                cap, kappa = 100 * metrics["cap_active_fraction"][i], metrics["kappa_mean"][i]
                start = f"{steps:>13s} {seed:5d} {epoch:6.0f}"
                cost = metrics["spectral_seconds"][i]
                print(f"{start} {cap:10.1f} % {sigma:13.3f} {kappa:7.3f} {cost:11.1f}", flush=True)


if __name__ == "__main__":
    main()
