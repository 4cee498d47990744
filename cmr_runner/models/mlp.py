"""The paper's network: a deep multilayer perceptron."""

import math
from itertools import pairwise

from torch import Tensor, nn

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "identity": nn.Identity,
}


class MLP(nn.Module):
    """`depth` linear layers, d_0 -> width -> ... -> width -> classes, an activation between them."""

    def __init__(
        self,
        input_shape: tuple[int, ...],
        num_classes: int,
        *,
        depth: int = 15,
        width: int = 256,
        activation: str = "tanh",
        bias: bool = True,
    ) -> None:
        super().__init__()
        if depth < 1:
            raise ValueError(f"model.depth must be >= 1, got {depth}")
        if width < 1:
            raise ValueError(f"model.width must be >= 1, got {width}")
        if activation not in ACTIVATIONS:
            raise ValueError(f"model.activation must be one of {', '.join(ACTIVATIONS)}, got {activation}")
        sizes = [math.prod(input_shape), *[width] * (depth - 1), num_classes]
        self.layers = nn.ModuleList(nn.Linear(n_in, n_out, bias=bias) for n_in, n_out in pairwise(sizes))
        self.activation = ACTIVATIONS[activation]()

    def forward(self, x: Tensor) -> Tensor:
        z = x.flatten(1)  # (B, d_0)
        for layer in self.layers[:-1]:
            z = self.activation(layer(z))  # (B, width)
        return self.layers[-1](z)  # (B, classes)
