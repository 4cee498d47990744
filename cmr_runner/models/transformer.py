"""A small transformer over image patches."""

import torch
from torch import Tensor, nn
from torch.nn.functional import unfold

from cmr_runner.checks import integer, number, require
from cmr_runner.models.shapes import depth_of, image_shape, width_of


class Transformer(nn.Module):
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
        self.patch = patch_of(patch, height, breadth)
        check_heads(heads, width)
        number("dropout", dropout, least=0, below=1)
        self.embedding = nn.Linear(channels * patch * patch, width)
        # The leading 1 makes it a row, not a matrix: no layer rule takes it for a weight.
        self.position = nn.Parameter(0.02 * torch.randn(1, (height // patch) * (breadth // patch), width))
        block = nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(block, depth_of("depth", depth), enable_nested_tensor=False)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        patches = unfold(x, self.patch, stride=self.patch).mT  # (B, N, channels · patch²)
        z = self.encoder(self.embedding(patches) + self.position)  # (B, N, width)
        return self.head(self.norm(z).mean(1))  # (B, classes)


def patch_of(patch: int, height: int, breadth: int) -> int:
    integer("patch", patch, least=1)
    require(
        "patch", patch, height % patch == 0 and breadth % patch == 0, f"a divisor of the image, {height} × {breadth}"
    )
    return patch


def check_heads(heads: int, width: int) -> None:
    width_of("width", width)
    integer("heads", heads, least=1)
    require("heads", heads, width % heads == 0, f"a divisor of width, {width}")
