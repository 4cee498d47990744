"""The order in which an epoch visits its examples."""

import numpy as np
import torch
from torch import Tensor


def epoch_order(count: int, seed: int, epoch: int) -> Tensor:
    """A permutation of range(count) that depends on (seed, epoch) alone, int64 (count,).

    Its generator is its own, so it neither reads nor moves the global one: a resumed run sees the same batches as
    an uninterrupted one. SeedSequence mixes the pair: seed 0, epoch 1 shares nothing with seed 1, epoch 0.
    """
    state = np.random.SeedSequence([seed, epoch]).generate_state(1, np.uint64)
    generator = torch.Generator().manual_seed(int(state[0]))
    return torch.randperm(count, generator=generator)
