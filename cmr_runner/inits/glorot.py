"""Glorot and Bengio's uniform initialisation."""

from torch import Generator, nn

from cmr_runner.inits.weights import factor, matrices_of, zero_biases_


def glorot_uniform_(model: nn.Module, generator: Generator, *, gain: float = 1.0) -> None:
    """U(−a, a) with a = gain · sqrt(6 / (fan_in + fan_out)); biases zero."""
    factor("gain", gain)
    for weight in matrices_of(model):
        nn.init.xavier_uniform_(weight, gain=gain, generator=generator)
    zero_biases_(model)
