"""Orders that depend on a few numbers alone."""

import numpy as np
import torch
from torch import Tensor


def epoch_order(count: int, seed: int, epoch: int) -> Tensor:
    """The order in which an epoch visits its examples: a permutation of range(count), int64 (count,)."""
    return permutation(count, seed, epoch)


def permutation(count: int, *key: int) -> Tensor:
    """A permutation of range(count) that depends on the numbers of `key` alone, int64 (count,).

    Its generator is its own, so it neither reads nor moves the global one: a resumed run sees the same batches as
    an uninterrupted one. SeedSequence mixes the numbers: seed 0, epoch 1 shares nothing with seed 1, epoch 0.
    """
    state = np.random.SeedSequence(key).generate_state(1, np.uint64)
    generator = torch.Generator().manual_seed(int(state[0]))
    return torch.randperm(count, generator=generator)
