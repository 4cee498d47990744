"""Leave the weights of finished runs out on purpose, to commit or send their results.

    python scripts/without_weights.py outputs/paper

Removes model.pt and the checkpoints of every finished run below the directories, and takes model.pt from the files
that run.json says the run keeps, so that the run counts as complete without it.
"""

import argparse
import sys
from pathlib import Path

from cmr_runner.runs.columns import CHECKPOINT, MODEL, PREVIOUS_CHECKPOINT, RUN_FILE, TABLES
from cmr_runner.runs.directory import FINAL_STATUSES, RunDirectory
from cmr_runner.runs.integrity import FILES, file_damage, fingerprints, record_damage


def leave_weights_out(directory: Path) -> str:
    """What kept the run as it was, empty if it was done."""
    run = RunDirectory(directory)
    record = run.read()
    damage = record_damage(record)
    if damage or record is None or record["status"] not in FINAL_STATUSES:
        return damage or f"it is {record and record['status']}"
    files = {name: known for name, known in (record.get(FILES) or {}).items() if name != MODEL}
    found = file_damage(directory, {FILES: files})
    if found:
        return "; ".join(found)
    run.write({**record, FILES: files or fingerprints(directory, TABLES)})
    for name in (MODEL, CHECKPOINT, PREVIOUS_CHECKPOINT):
        (directory / name).unlink(missing_ok=True)
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=Path, metavar="DIR")
    failed = 0
    for path in parser.parse_args().paths:
        for file in sorted(path.rglob(RUN_FILE)):
            reason = leave_weights_out(file.parent)
            failed += bool(reason)
            if reason:
                print(f"{file.parent}: left as it is, {reason}", file=sys.stderr)
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
