"""The IDX format of MNIST's files: two zero bytes, a type, the number of dimensions, their sizes, then the bytes."""

import struct
from pathlib import Path

import numpy as np

_UNSIGNED_BYTE = 0x08


def write_idx(path: Path, values: np.ndarray) -> None:
    """Write a uint8 array; sizes are big-endian 32-bit."""
    if values.dtype != np.uint8:
        raise ValueError(f"an IDX file of MNIST holds uint8, not {values.dtype}")
    header = struct.pack(f">BBBB{values.ndim}I", 0, 0, _UNSIGNED_BYTE, values.ndim, *values.shape)
    path.write_bytes(header + values.tobytes())


def read_idx(path: Path) -> np.ndarray:
    """The uint8 array of an IDX file."""
    content = np.fromfile(path, dtype=np.uint8)
    if content[:3].tolist() != [0, 0, _UNSIGNED_BYTE]:
        raise ValueError(f"{path} is no IDX file of unsigned bytes")
    start = 4 + 4 * int(content[3])
    return content[start:].reshape(content[4:start].view(">u4").tolist())
