"""Gaussian class clusters seen through a fixed random map: data of any size, made in a moment."""

import math
from collections.abc import Sequence

import numpy as np
import torch

from cmr_runner.checks import integer, number
from cmr_runner.data.arguments import MOST_EXAMPLES, example_shape
from cmr_runner.data.dataset import Dataset, with_validation

_LATENT = 16


def synthetic(
    shape: Sequence[int] = (64,),
    classes: int = 10,
    train: int = 2048,
    test: int = 512,
    spread: float = 1.0,
    seed: int = 0,
    validation: int = 0,
) -> Dataset:
    """x = tanh(A z), z ~ N(centre of y, spread² I) in 16 dimensions, each feature standardised over the training part.

    `shape` is [features] or [channels, height, width]. `seed` makes the data and is the data set's own: runs with
    different training seeds see the same examples.
    """
    sizes = example_shape("shape", shape)
    integer("classes", classes, least=2, most=2**16)
    integer("train", train, least=1, most=MOST_EXAMPLES)
    integer("test", test, least=1, most=MOST_EXAMPLES)
    number("spread", spread, above=0)
    generator = np.random.default_rng(integer("seed", seed, least=0))

    features = math.prod(sizes)
    centres = generator.standard_normal((classes, _LATENT))
    A = generator.standard_normal((_LATENT, features)) / math.sqrt(_LATENT)
    y = generator.integers(classes, size=train + test)
    z = centres[y] + spread * generator.standard_normal((train + test, _LATENT))
    x = np.tanh(z @ A)
    # A single training example has deviation 0: it is left at its mean, not divided by zero.
    deviation = x[:train].std(axis=0)
    x = (x - x[:train].mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)

    x_all = torch.from_numpy(x.astype(np.float32)).reshape(-1, *sizes)
    y_all = torch.from_numpy(y.astype(np.int64))
    data = Dataset("synthetic", x_all[:train], y_all[:train], x_all[train:], y_all[train:], classes)
    return with_validation(data, validation)
