"""The paper's network: a deep multilayer perceptron."""

import math
from itertools import pairwise

from torch import Tensor, nn

from cmr_runner.checks import boolean
from cmr_runner.models.activations import activation_named
from cmr_runner.models.shapes import depth_of, width_of


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
        hidden = [width_of("width", width)] * (depth_of("depth", depth) - 1)
        sizes = [math.prod(input_shape), *hidden, num_classes]
        self.layers = nn.ModuleList(
            nn.Linear(n_in, n_out, bias=boolean("bias", bias)) for n_in, n_out in pairwise(sizes)
        )
        self.activation = activation_named(activation)

    def forward(self, x: Tensor) -> Tensor:
        z = x.flatten(1)  # (B, d_0)
        for layer in self.layers[:-1]:
            z = self.activation(layer(z))  # (B, width)
        return self.layers[-1](z)  # (B, classes)
