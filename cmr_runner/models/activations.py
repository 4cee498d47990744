"""Activations by the names a user types."""

from torch import nn

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "identity": nn.Identity,
}


def activation_named(name: str) -> nn.Module:
    if name not in ACTIVATIONS:
        raise ValueError(f"model.activation must be one of {', '.join(ACTIVATIONS)}, got {name}")
    return ACTIVATIONS[name]()
