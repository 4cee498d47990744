"""A checkpoint as bytes: packed with what it belongs to, unpacked without running any code from it."""

from __future__ import annotations

import io
from typing import Any

import torch

from cmr_runner.digests import check_seal, sealed

FORMAT = 2


class BadCheckpoint(Exception):
    """The bytes are not a whole checkpoint of this run."""


def pack(state: dict[str, Any], *, identity: str) -> bytes:
    """`state` (plain types and tensors) as bytes that know the run they belong to."""
    return saved({"format": FORMAT, "identity": identity, "state": state})


def saved(content: dict[str, Any]) -> bytes:
    """A file of torch's that carries its own SHA-256."""
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return sealed(buffer.getvalue())


def unpack(blob: bytes, *, identity: str) -> dict[str, Any]:
    """The state that was packed, on the CPU. Raises BadCheckpoint for anything else."""
    try:
        check_seal(blob)
        content = torch.load(io.BytesIO(blob), map_location="cpu", weights_only=True)
    except MemoryError:
        raise
    except Exception as error:  # whatever else reading it raises, it is no checkpoint
        reason = str(error).strip().split("\n")[0]
        raise BadCheckpoint(f"not a whole checkpoint: {reason or type(error).__name__}") from error
    if not isinstance(content, dict) or content.keys() != {"format", "identity", "state"}:
        raise BadCheckpoint("not a checkpoint of cmr_runner")
    if content["format"] != FORMAT:
        raise BadCheckpoint(f"format {content['format']}, this version reads {FORMAT}")
    if content["identity"] != identity:
        raise BadCheckpoint(f"it belongs to run {content['identity']}, not to {identity}")
    return content["state"]
