"""Activations by the names a user types."""

from torch import nn

from cmr_runner.checks import one_of

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "identity": nn.Identity,
}


def activation_named(name: str) -> nn.Module:
    return ACTIVATIONS[one_of("activation", name, list(ACTIVATIONS))]()
