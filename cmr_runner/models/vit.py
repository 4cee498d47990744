"""A transformer over image patches."""

import torch
from torch import Tensor, nn
from torch.nn.functional import unfold

from cmr_runner.checks import integer, number, require
from cmr_runner.models.shapes import depth_of, image_shape, width_of


class ViT(nn.Module):
    """Patches -> linear embedding plus learned position -> torch's pre-norm encoder -> mean over patches -> linear.

    A block's matrices: q, k, v (fused by torch, regularised apart), the attention's output, and two of its MLP.
    """

    def __init__(
        self,
        input_shape: tuple[int, ...],
        num_classes: int,
        *,
        patch: int = 4,
        depth: int = 4,
        width: int = 64,
        heads: int = 4,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        channels, height, breadth = image_shape(input_shape)
        integer("patch", patch, least=1)
        divides = height % patch == 0 and breadth % patch == 0
        require("patch", patch, divides, f"a divisor of the image, {height} × {breadth}")
        self.patch = patch
        self.embedding = nn.Linear(channels * patch * patch, width_of("width", width))
        self.position = positions((height // patch) * (breadth // patch), width)
        self.encoder = encoder(depth, width, heads, dropout)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        patches = unfold(x, self.patch, stride=self.patch).mT  # (B, N, channels · patch²)
        z = self.encoder(self.embedding(patches) + self.position)  # (B, N, width)
        return self.head(self.norm(z).mean(1))  # (B, classes)


def encoder(depth: int, width: int, heads: int, dropout: float) -> nn.TransformerEncoder:
    """torch's pre-norm blocks with GELU and an MLP of four times the width."""
    width_of("width", width)
    integer("heads", heads, least=1)
    require("heads", heads, width % heads == 0, f"a divisor of width, {width}")
    number("dropout", dropout, least=0, below=1)
    block = nn.TransformerEncoderLayer(
        width, heads, 4 * width, dropout, activation="gelu", batch_first=True, norm_first=True
    )
    return nn.TransformerEncoder(block, depth_of("depth", depth), enable_nested_tensor=False)


def positions(count: int, width: int) -> nn.Parameter:
    # The leading 1 makes it a row, not a matrix: no layer rule takes it for a weight.
    return nn.Parameter(0.02 * torch.randn(1, count, width))
