"""A small convolutional network."""

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn

from cmr_runner.checks import require
from cmr_runner.models.activations import activation_named
from cmr_runner.models.shapes import image_shape, width_of


class CNN(nn.Module):
    """3 × 3 convolutions, each after the first halving the image; the mean over positions; a linear layer."""

    def __init__(
        self,
        input_shape: tuple[int, ...],
        num_classes: int,
        *,
        channels: Sequence[int] = (32, 64, 128),
        activation: str = "relu",
    ) -> None:
        super().__init__()
        require("channels", list(channels), len(channels) > 0, "a list of at least one size")
        sizes = [image_shape(input_shape)[0], *(width_of("channels", size) for size in channels)]
        self.convolutions = nn.ModuleList(
            nn.Conv2d(n_in, n_out, 3, stride=1 if i == 0 else 2, padding=1)
            for i, (n_in, n_out) in enumerate(pairwise(sizes))
        )
        self.activation = activation_named(activation)
        self.head = nn.Linear(sizes[-1], num_classes)

    def forward(self, x: Tensor) -> Tensor:
        for convolution in self.convolutions:
            x = self.activation(convolution(x))  # (B, channels, H, W)
        return self.head(x.mean((-2, -1)))  # (B, classes)
