"""Run committed runs again, from nothing, and compare what they write with what is committed.

    python scripts/same_again.py                              the fastest run of each committed experiment
    python scripts/same_again.py outputs/paper/rivals/l2-*    these

A run is named by its directory: its run.json says what to run. Prints one line per run, `equal` where metrics.csv
(times aside), layers.csv and spectra.csv have every digit of the committed ones, else the first difference of each file
that differs; exits with 1 if any does.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cmr_runner.runs.columns import LAYERS, METRICS, SPECTRA, TIME_COLUMNS
from cmr_runner.runs.identity import leaves

ROOT = Path(__file__).resolve().parents[1]
COMMITTED = ROOT / "outputs"


def quickest_runs(committed: Path) -> list[Path]:
    runs: dict[str, list[Path]] = {}
    for path in committed.glob("*/*/*/run.json"):  # below paper/ and beyond/
        runs.setdefault(path.parent.parent.name, []).append(path.parent)
    return [min(runs[experiment], key=_seconds) for experiment in sorted(runs)]


def _seconds(run: Path) -> float:
    return sum(float(row["seconds"]) for row in _rows(run / METRICS))


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def words(record: Mapping[str, Any]) -> list[str]:
    """The overrides of cmr-run that give the recorded configuration: every choice, then every value."""
    choices = [f"{group}={choice}" for group, choice in record["choices"].items() if choice and "@" not in group]
    values = [f"{key}={json.dumps(value)}" for key, value in leaves(record["config"]) if "._" not in key]
    return [*choices, *values, f"threads={record['provenance']['threads']}", "spectral_threads=1"]


def run_again(run: Path, output: Path) -> Path:
    """Run it under `output`, with the vector instructions it was made with; where the result is."""
    record = json.loads((run / "run.json").read_text(encoding="utf-8"))
    # Runs from before run.json kept this were made with AVX2.
    instructions = record["provenance"].get("instructions", "AVX2")
    environment = {
        "ATEN_CPU_CAPABILITY": instructions.lower(),
        "MKL_ENABLE_INSTRUCTIONS": instructions,
        "ONEDNN_MAX_CPU_ISA": instructions,
    }
    command = [sys.executable, "-m", "cmr_runner", *words(record), f"output_root={output}", "progress=none"]
    # What it wrote tells how it ended; what it prints of where that is would only be in the way.
    subprocess.run(command, env=os.environ | environment, stdout=subprocess.DEVNULL, check=False, cwd=ROOT)
    return next((path.parent for path in output.glob("*/*/run.json")), output)  # a revision may have moved it


def differences(committed: Path, again: Path) -> list[str]:
    return [found for name in (METRICS, LAYERS, SPECTRA) if (found := _difference(committed / name, again / name))]


def _difference(committed: Path, again: Path) -> str:
    if not again.exists():
        return f"{committed.name} was not written"
    before, after = _rows(committed), _rows(again)
    if len(before) != len(after):
        return f"{committed.name} has {len(after)} rows, not {len(before)}"
    for old, new in zip(before, after, strict=True):
        for key in old | new:
            if key not in TIME_COLUMNS and old.get(key) != new.get(key):
                return f"{committed.name}, epoch {old['epoch']}: {key} is {new.get(key)}, not {old.get(key)}"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN")
    chosen = parser.parse_args().runs or quickest_runs(COMMITTED)
    for run in chosen:
        if not (run / "run.json").exists():
            parser.error(f"{run} is no run directory: it has no run.json")
    failed = 0
    with tempfile.TemporaryDirectory() as output:
        for number, run in enumerate(chosen):  # a root each, or one could be copied from another
            found = differences(run, run_again(run.resolve(), Path(output) / str(number)))
            failed += bool(found)
            print(f"{'; '.join(found) or 'equal'}: {run.parent.name}/{run.name}", flush=True)
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
