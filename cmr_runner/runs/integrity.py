"""Whether a run directory still holds what the run wrote: run.json by its own digest, the other files by run.json's.

A run keeps the files that its run.json lists. One whose weights were left out on purpose does not list them.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cmr_runner.digests import fingerprint
from cmr_runner.runs.identity import document_hash, recorded_document

STATUSES = ("running", "completed", "stopped", "diverged", "failed", "interrupted")
FILES = "files"
DIGEST = "digest"


def record_digest(record: Mapping[str, Any]) -> str:
    """Of the content of run.json, the digest in it aside."""
    content = {key: value for key, value in record.items() if key != DIGEST}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def record_damage(record: Any) -> str:
    """What is wrong with the content of a run.json, empty where nothing is. Runs of earlier versions have no digest."""
    if not isinstance(record, Mapping):
        return "it cannot be read"
    absent = [
        key for key in ("identity", "choices", "config", "provenance") if not isinstance(record.get(key), Mapping)
    ]
    if absent:
        return f"it has no {absent[0]}"
    if record.get("status") not in STATUSES:
        return f"its status is {record.get('status')!r}"
    if DIGEST in record and record[DIGEST] != record_digest(record):
        return "its content does not have the digest it was written with"
    if record["identity"].get("hash") != document_hash(recorded_document(record)):
        return "its configuration does not give its hash"
    return ""


def fingerprints(directory: Path, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Size and SHA-256 of those of the files that are there: what a finished run keeps."""
    return {name: fingerprint(directory / name) for name in names if (directory / name).is_file()}


def file_damage(directory: Path, record: Mapping[str, Any]) -> list[str]:
    """What is wrong with the files that a finished run keeps, one phrase for each. Nothing is known of a run of an
    earlier version."""
    files = record.get(FILES)
    return [
        phrase
        for name, expected in (files.items() if isinstance(files, Mapping) else ())
        if (phrase := _damage(directory, str(name), expected))
    ]


def _damage(directory: Path, name: str, expected: Any) -> str:
    path = directory / name
    if Path(name).name != name or not isinstance(expected, Mapping):
        return f"run.json lists {name!r}, which is no file of a run"
    if not path.is_file():  # also a FIFO, which would be read for ever
        return f"{name} is missing"
    size = path.stat().st_size
    if size != expected.get("size"):
        return f"{name} has {size} bytes, not {expected.get('size')}"
    return "" if fingerprint(path) == dict(expected) else f"{name} has other contents than the run wrote"
