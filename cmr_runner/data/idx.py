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
