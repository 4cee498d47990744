"""Random numbers that depend on (seed, group, step) and on nothing else, so that a resumed run draws the same."""

import hashlib

import torch


def generator_for(seed: int, group: str, step: int) -> torch.Generator:
    digest = hashlib.blake2b(f"{seed}/{group}/{step}".encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)  # torch takes 63 bits
