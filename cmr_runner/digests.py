"""SHA-256 of files: in a file of tensors as the comment of its zip archive, elsewhere beside the file's size.

torch.load takes flipped and zeroed bytes of a tensor for numbers. A sealed file is still an ordinary file of torch's,
and its seal tells whether it is what was saved.
"""

import hashlib
from pathlib import Path
from typing import Any

MARK = b"cmr_runner sha256 "
LENGTH = len(MARK) + 64
BLOCK = 1 << 20


class Damaged(ValueError):
    """The bytes are not those that were saved."""


def sealed(archive: bytes) -> bytes:
    """`archive` (a zip file without a comment, as torch.save writes it) with its own digest as the comment."""
    if archive[-2:] != b"\0\0":
        raise ValueError("not a zip file without a comment")
    content = archive[:-2] + LENGTH.to_bytes(2, "little")
    return content + MARK + hashlib.sha256(content).hexdigest().encode()


def is_sealed(blob: bytes) -> bool:
    return blob[-LENGTH:].startswith(MARK)


def check_seal(blob: bytes) -> None:
    """Raise Damaged unless `blob` is sealed and is what it was then."""
    if not is_sealed(blob):
        raise Damaged("its SHA-256 is missing: it was cut short or written by another program")
    if blob[-LENGTH:][len(MARK) :] != hashlib.sha256(blob[:-LENGTH]).hexdigest().encode():
        raise Damaged("its content does not have the SHA-256 it was saved with")


def fingerprint(path: Path) -> dict[str, Any]:
    """Size and SHA-256 of a file, for run.json."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return {"size": path.stat().st_size, "sha256": digest.hexdigest()}
