"""scikit-learn's bundled 8 × 8 handwritten digits: real data that needs no network."""

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

    from sklearn.datasets import load_digits  # here, because it costs a second that other data sets need not pay

    bunch = load_digits()
    labels = np.asarray(bunch.target, dtype=np.int64)
    is_test = np.zeros(labels.shape, dtype=bool)
    for label in range(10):
        is_test[np.flatnonzero(labels == label)[4::5]] = True

    pixels = np.asarray(bunch.images, dtype=np.float64)[:, None]  # (N, 1, 8, 8), 0 … 16
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
