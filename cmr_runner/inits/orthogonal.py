"""Orthogonal weights times a gain: every singular value equals the gain, so κ = 1 exactly."""

from torch import Generator, nn

from cmr_runner.inits.weights import matrices_of, zero_biases_


def orthogonal_(model: nn.Module, generator: Generator, *, gain: float = 1.0) -> None:
    """Orthogonal rows or columns, whichever are fewer, scaled by `gain`; biases zero. gain = 0.06 is the κ-stress."""
    if not gain > 0:
        raise ValueError(f"init.gain must be > 0, got {gain}")
    for weight in matrices_of(model):
        nn.init.orthogonal_(weight, gain=gain, generator=generator)
    zero_biases_(model)
