"""Seeds for the parts of a run, each mixed from the run's seed and a name, so that none depends on another's use."""

import zlib

import numpy as np
import torch


def mixed_seed(seed: int, purpose: str, index: int = 0) -> int:
    """A 64-bit seed that depends on (seed, purpose, index) alone."""
    parts = [seed, zlib.crc32(purpose.encode()), index]
    return int(np.random.SeedSequence(parts).generate_state(1, np.uint64)[0])


def generator(seed: int, purpose: str, index: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(mixed_seed(seed, purpose, index))
