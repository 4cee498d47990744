"""Runs as in the experiments beyond the paper: a stream of tasks, and a transformer with its kinds of layers."""

import csv
from pathlib import Path

from synthetic_runs import write_run

BLOCK = "encoder.layers.0"
WHOLE = [f"{BLOCK}.self_attn.in_proj_weight.{part}" for part in "qkv"]
REST = [f"{BLOCK}.self_attn.out_proj.weight", f"{BLOCK}.linear1.weight", f"{BLOCK}.linear2.weight", "head.weight"]


def write_stream(root: Path, method: str, *, epochs_per_task: int = 2, **options) -> Path:
    """A run whose epochs train one task after another."""
    folder = write_run(root, "stream", method, layers=2, **options)
    edit_table(folder / "metrics.csv", lambda row: {"task": max(0, int(row["epoch"]) - 1) // epochs_per_task})
    return folder


def write_transformer(root: Path, method: str, *, by_head: bool = False, **options) -> Path:
    names = [f"{name}.h{i}" for name in WHOLE for i in range(2)] + REST if by_head else WHOLE + REST
    folder = write_run(root, "transformer", method, layers=len(names), text=True, **options)
    for table in ("layers.csv", "spectra.csv"):
        edit_table(folder / table, lambda row: {"layer": names[int(row["layer"].rpartition(".")[2]) // 2]})
    return folder


def edit_table(path: Path, change) -> None:
    with path.open(newline="") as file:
        rows = [row | change(row) for row in csv.DictReader(file)]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
