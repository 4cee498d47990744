"""The paper's network: a deep multilayer perceptron."""

import math
from itertools import pairwise

from torch import Tensor, nn

from cmr_runner.models.activations import activation_named
from cmr_runner.models.shapes import at_least_one


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
        hidden = [at_least_one("width", width)] * (at_least_one("depth", depth) - 1)
        sizes = [math.prod(input_shape), *hidden, num_classes]
        self.layers = nn.ModuleList(nn.Linear(n_in, n_out, bias=bias) for n_in, n_out in pairwise(sizes))
        self.activation = activation_named(activation)

    def forward(self, x: Tensor) -> Tensor:
        z = x.flatten(1)  # (B, d_0)
        for layer in self.layers[:-1]:
            z = self.activation(layer(z))  # (B, width)
        return self.layers[-1](z)  # (B, classes)
