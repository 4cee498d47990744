"""The residual network for small images, and the plain one: the same network without skips and norms."""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from cmr_runner.checks import boolean, integer, one_of, require
from cmr_runner.models.activations import activation_named
from cmr_runner.models.shapes import DEEPEST, image_shape, width_of

NORMS = ("batch", "none")


class ResNet(nn.Module):
    """3 × 3 convolutions in three stages of width, 2 · width and 4 · width channels; the mean over positions; a linear
    layer. He et al.'s network for CIFAR: a block is two convolutions, a skip around it has no weights.

    depth: all layers, 6 n + 2 of them. norm: batch or none. skips: whether a block's input is added to its output.
    """

    def __init__(
        self,
        input_shape: tuple[int, ...],
        num_classes: int,
        *,
        depth: int = 20,
        width: int = 16,
        norm: Literal["batch", "none"] = "batch",
        skips: bool = True,
        activation: str = "relu",
    ) -> None:
        super().__init__()
        integer("depth", depth, least=8, most=DEEPEST)
        require("depth", depth, depth % 6 == 2, "6 n + 2 for some n >= 1, as 8, 14, 20")
        width_of("width", width)
        one_of("norm", norm, NORMS)
        boolean("skips", skips)
        self.first = nn.Conv2d(image_shape(input_shape)[0], width, 3, padding=1, bias=norm == "none")
        self.norm = _norm(norm, width)
        self.activation = activation_named(activation)
        blocks: list[nn.Module] = []
        channels = width
        for stage in range(3):
            for index in range(depth // 6):
                stride = 2 if stage > 0 and index == 0 else 1
                blocks.append(Block(channels, width << stage, stride, norm, skips, activation))
                channels = width << stage
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(channels, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = x.contiguous(memory_format=torch.channels_last)  # a third faster on a CPU
        z = self.activation(self.norm(self.first(x)))  # (B, width, H, W)
        return self.head(self.blocks(z).mean((-2, -1)))  # (B, classes)


class Block(nn.Module):
    def __init__(self, n_in: int, n_out: int, stride: int, norm: str, skip: bool, activation: str) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(n_in, n_out, 3, stride, padding=1, bias=norm == "none")
        self.norm1 = _norm(norm, n_out)
        self.conv2 = nn.Conv2d(n_out, n_out, 3, padding=1, bias=norm == "none")
        self.norm2 = _norm(norm, n_out)
        self.activation = activation_named(activation)
        self.skip = skip
        self.stride, self.new_channels = stride, n_out - n_in

    def forward(self, x: Tensor) -> Tensor:
        z = self.norm2(self.conv2(self.activation(self.norm1(self.conv1(x)))))
        return self.activation(z + self._shortcut(x) if self.skip else z)

    def _shortcut(self, x: Tensor) -> Tensor:
        """x at every `stride`-th position, with zeros as the new channels."""
        return pad(x[:, :, :: self.stride, :: self.stride], [0, 0, 0, 0, 0, self.new_channels])


def _norm(norm: str, channels: int) -> nn.Module:
    return nn.BatchNorm2d(channels) if norm == "batch" else nn.Identity()
