"""Orthogonal weights times a gain: every singular value equals the gain, so κ = 1 up to rounding."""

import torch
from torch import Generator, nn

from cmr_runner.inits.weights import factor, matrices_of, zero_biases_
from cmr_runner.spectral import as_matrix, singular_values


def orthogonal_(model: nn.Module, generator: Generator, *, gain: float = 1.0) -> None:
    """Orthogonal rows or columns, whichever are fewer, scaled by `gain`; biases zero. gain = 0.06 is the κ-stress."""
    factor("gain", gain)
    for weight in matrices_of(model):
        nn.init.orthogonal_(weight, gain=gain, generator=generator)
    zero_biases_(model)


@torch.no_grad()
def rescaled_(model: nn.Module, generator: Generator, *, gain: float = 0.06, sigma_max: float = 1.0) -> None:
    """`orthogonal_` with the gain, then each weight divided once by its σ_max and multiplied by `sigma_max`.

    The control for what a change of scale alone does to the κ-stress. After an orthogonal start this is orthogonal
    with gain `sigma_max` up to rounding, and draws the same directions from the same seed.
    """
    factor("sigma_max", sigma_max)
    orthogonal_(model, generator, gain=gain)
    for weight in matrices_of(model):
        weight.mul_(sigma_max / float(singular_values(as_matrix(weight))[0]))
