"""A small transformer over image patches."""

import torch
from torch import Tensor, nn
from torch.nn.functional import unfold

from cmr_runner.models.shapes import at_least_one, image_shape


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
        channels, height, breadth = image_shape("transformer", input_shape)
        self.patch = at_least_one("patch", patch)
        if height % patch or breadth % patch:
            raise ValueError(f"model.patch must divide the image, {height} × {breadth}, got {patch}")
        if at_least_one("width", width) % at_least_one("heads", heads):
            raise ValueError(f"model.width must be a multiple of model.heads, got {width} and {heads}")
        if not 0 <= dropout < 1:
            raise ValueError(f"model.dropout must be in [0, 1), got {dropout}")
        self.embedding = nn.Linear(channels * patch * patch, width)
        # The leading 1 makes it a row, not a matrix: no layer rule takes it for a weight.
        self.position = nn.Parameter(0.02 * torch.randn(1, (height // patch) * (breadth // patch), width))
        block = nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(block, at_least_one("depth", depth), enable_nested_tensor=False)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        patches = unfold(x, self.patch, stride=self.patch).mT  # (B, N, channels · patch²)
        z = self.encoder(self.embedding(patches) + self.position)  # (B, N, width)
        return self.head(self.norm(z).mean(1))  # (B, classes)
