"""Write the λ that validation chose into conf/regularizer/<experiment>/<method>.yaml.

    cmr-run -m experiment=cifar_plain_tune hydra/launcher=joblib
    python scripts/choose_lambda.py outputs/cifar_plain_tune

For each method it is the λ with the smallest validation loss after the last epoch (of a stream of tasks: the mean over
the tasks' last epochs); a run that diverged is left out. The test set is not looked at.
"""

import argparse
import re
import sys
from pathlib import Path

import pandas as pd

from cmr_runner.commands.composition import config_directory
from cmr_runner.runs.columns import METRICS
from cmr_runner.runs.directory import RunDirectory


def validation_loss(metrics: pd.DataFrame) -> float:
    if "task" in metrics:
        metrics = metrics[metrics["epoch"] > 0].groupby("task").last()
        return float(metrics["val_loss"].mean())
    return float(metrics["val_loss"].iloc[-1])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="the runs of an experiment <name>_tune")
    folder: Path = parser.parse_args().folder
    experiment = folder.resolve().name.removesuffix("_tune")
    losses: dict[str, dict[float, float]] = {}
    for path in sorted(folder.glob("*/run.json")):
        record = RunDirectory(path.parent).read() or {}
        if record.get("status") == "completed":
            loss = validation_loss(pd.read_csv(path.with_name(METRICS)))
            losses.setdefault(record["choices"]["regularizer"], {})[record["config"]["regularizer"]["lam"]] = loss
    if not losses:
        parser.error(f"{folder}: no completed run in it")
    for method, by_lam in sorted(losses.items()):
        best = min(by_lam, key=lambda lam: by_lam[lam])
        file = config_directory() / "regularizer" / experiment / f"{method}.yaml"
        file.write_text(re.sub(r"^lam: .*$", f"lam: {best:g}", file.read_text(), flags=re.MULTILINE))
        table = "  ".join(f"{lam:g}: {loss:.4f}" for lam, loss in sorted(by_lam.items()))
        print(f"{method}: lam {best:g} (validation loss by lam: {table})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
