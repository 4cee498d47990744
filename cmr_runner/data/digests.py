"""Checksums of files. Which one it is follows from its length: MD5, SHA-1 or SHA-256, whichever a source publishes."""

import hashlib
from pathlib import Path

from cmr_runner.data.errors import SourceError

_KINDS = {32: ("md5", "MD5"), 40: ("sha1", "SHA-1"), 64: ("sha256", "SHA-256")}


def has_digest(path: Path, digest: str) -> bool:
    return _digest(path, _KINDS[len(digest)][0]) == digest


def require_digest(path: Path, digest: str) -> None:
    """SourceError unless the file's checksum is `digest`."""
    kind, label = _KINDS[len(digest)]
    found = _digest(path, kind)
    if found != digest:
        raise SourceError(f"{path.name} has {label} {found}, not {digest}")


def _digest(path: Path, kind: str) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.new(kind, usedforsecurity=False)).hexdigest()
