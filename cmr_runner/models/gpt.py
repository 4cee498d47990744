"""A causal transformer over tokens."""

from torch import Tensor, nn

from cmr_runner.checks import boolean
from cmr_runner.models.shapes import width_of
from cmr_runner.models.vit import encoder, positions


class GPT(nn.Module):
    """Token embedding plus learned position -> torch's pre-norm encoder, masked -> norm -> a linear head.

    `tied`: the head's matrix is the embedding's. An embedding looks vectors up and multiplies with none, so neither it
    nor a head tied to it is regularised unless asked for.
    """

    mask: Tensor

    def __init__(
        self,
        input_shape: tuple[int, ...],
        num_classes: int,
        *,
        depth: int = 4,
        width: int = 128,
        heads: int = 4,
        dropout: float = 0.0,
        tied: bool = False,
    ) -> None:
        super().__init__()
        if len(input_shape) != 1:
            raise ValueError(f"it needs text (context,), the data set has {input_shape}")
        self.embedding = nn.Embedding(num_classes, width_of("width", width))
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.position = positions(input_shape[0], width)
        self.encoder = encoder(depth, width, heads, dropout)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, num_classes, bias=False)
        if boolean("tied", tied):
            self.head.weight = self.embedding.weight
        mask = nn.Transformer.generate_square_subsequent_mask(input_shape[0])
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        count = tokens.shape[1]
        z = self.embedding(tokens) + self.position[:, :count]  # (B, T, width)
        z = self.encoder(z, mask=self.mask[:count, :count], is_causal=True)
        return self.head(self.norm(z))  # (B, T, tokens)
