"""scikit-learn's bundled 8 × 8 handwritten digits: real data that needs no network."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

from cmr_runner.data.arguments import limit
from cmr_runner.data.dataset import Dataset, with_validation


def digits(train_limit: int | None = None, test_limit: int | None = None, validation: int = 0) -> Dataset:
    """1,442 training and 355 test images (N, 1, 8, 8), scaled to the training pixels' mean 0 and deviation 1.

    Within each class every fifth image, in scikit-learn's order, is a test image. That needs no random numbers, and it
    keeps the classes balanced (the set counts 0 … 9 in long stretches, so every fifth of all would favour 4 and 9).
    """
    train_end, test_end = limit("train_limit", train_limit), limit("test_limit", test_limit)

    pixels, labels = bundled()
    is_test = np.zeros(labels.shape, dtype=bool)
    for label in range(10):
        is_test[np.flatnonzero(labels == label)[4::5]] = True

    train = pixels[~is_test]
    x = torch.from_numpy(((pixels - train.mean()) / train.std()).astype(np.float32))
    y = torch.from_numpy(labels)
    test = torch.from_numpy(is_test)
    data = Dataset(
        name="digits",
        train_x=x[~test][:train_end],
        train_y=y[~test][:train_end],
        test_x=x[test][:test_end],
        test_y=y[test][:test_end],
        num_classes=10,
    )
    return with_validation(data, validation)


def bundled() -> tuple[np.ndarray, np.ndarray]:
    """Pixels (N, 1, 8, 8), 0 … 16, and labels (N,), as `sklearn.datasets.load_digits` has them.

    Its file is read where it lies: importing scikit-learn for it takes longer than all else before the first step.
    """
    spec = find_spec("sklearn")
    file = Path(spec.submodule_search_locations[0] if spec and spec.submodule_search_locations else "")
    file = file / "datasets" / "data" / "digits.csv.gz"
    if file.is_file():
        rows = np.loadtxt(file, delimiter=",")  # 64 pixels and the label
        return rows[:, :-1].reshape(-1, 1, 8, 8), rows[:, -1].astype(np.int64)
    from sklearn.datasets import load_digits  # a version that keeps it elsewhere

    bunch = load_digits()
    return np.asarray(bunch.images, dtype=np.float64)[:, None], np.asarray(bunch.target, dtype=np.int64)
