"""The networks that the benchmarks measure a step on, each with its batches, at κ near 3.4, as CMR leaves them.

Labels are random and a batch comes again only after BATCHES steps: with one batch, learned by heart, the task's
gradient would vanish, and the penalty's with it under the cap, as in no training.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from cmr_runner.data.torchvision_import import import_torchvision
from cmr_runner.inits import prescribed_kappa_
from cmr_runner.models import GPT, MLP, ResNet, ViT

KAPPA = 3.4
CLASSES = 10
BATCHES = 32
CHARACTERS = 84  # of Shakespeare


@dataclass(frozen=True)
class Case:
    """A network and its batches."""

    title: str
    make: Callable[[], nn.Module]
    inputs: Callable[[torch.Generator], Tensor]

    def network(self) -> nn.Module:
        torch.manual_seed(0)
        model = self.make()
        prescribed_kappa_(model, torch.Generator().manual_seed(0), kappa=KAPPA)
        return model

    def loss(self) -> Callable[[nn.Module], Tensor]:
        generator = torch.Generator().manual_seed(0)
        inputs = [self.inputs(generator) for _ in range(BATCHES)]
        batches = cycle([(x, torch.randint(CLASSES, labels_of(x), generator=generator)) for x in inputs])

        def of_next_batch(model: nn.Module) -> Tensor:
            x, y = next(batches)
            return cross_entropy(model(x).flatten(0, -2), y.flatten())

        return of_next_batch


def labels_of(x: Tensor) -> torch.Size:
    """The shape of a batch's labels: one for each character, or one for each example."""
    return x.shape if x.dtype == torch.long else x.shape[:1]


class Encoder(nn.Module):
    """`depth` pre-norm transformer blocks between an input map and a head on the mean token."""

    def __init__(self, inputs: int, width: int, depth: int, heads: int) -> None:
        super().__init__()
        self.first = nn.Linear(inputs, width)
        block = [width, heads, 4 * width, 0.0]
        self.blocks = nn.Sequential(
            *(nn.TransformerEncoderLayer(*block, batch_first=True, norm_first=True) for _ in range(depth))
        )
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.first(x)).mean(1))  # (B, T, inputs) -> (B, classes)


def images(batch: int, *shape: int) -> Callable[[torch.Generator], Tensor]:
    return lambda generator: torch.randn(batch, *shape, generator=generator)


CASES = {
    "paper": Case("15 layers of 256, batch 64", lambda: MLP((1, 28, 28), CLASSES), images(64, 1, 28, 28)),
    "wide": Case(
        "6 layers of 1024, batch 256", lambda: MLP((1, 28, 28), CLASSES, depth=6, width=1024), images(256, 1, 28, 28)
    ),
    "resnet18": Case(
        "resnet18, batch 32 of 3 × 64 × 64",
        lambda: import_torchvision().models.resnet18(num_classes=CLASSES),
        images(32, 3, 64, 64),
    ),
    "vit": Case(
        "ViT of width 192, depth 12, 3 heads, batch 32 of 64 tokens",
        lambda: Encoder(48, 192, 12, 3),
        images(32, 64, 48),
    ),
    "gpt2": Case(
        "GPT-2 small's shapes, 12 blocks of 768, batch 8 × 256 tokens",
        lambda: Encoder(768, 768, 12, 12),
        images(8, 256, 768),
    ),
    # Those of the experiments of docs/beyond.md, as conf/experiment/ has them.
    "cifar_plain": Case(
        "cifar_plain: 20 layers of width 8, no norms, no skips, batch 64",
        lambda: ResNet((3, 32, 32), CLASSES, depth=20, width=8, norm="none", skips=False),
        images(64, 3, 32, 32),
    ),
    "cifar_resnet": Case(
        "cifar_resnet: ResNet-8 of width 8, batch 128",
        lambda: ResNet((3, 32, 32), CLASSES, depth=8, width=8),
        images(128, 3, 32, 32),
    ),
    "cifar_vit": Case(
        "cifar_vit: ViT of width 64, depth 4, batch 128 of 16 tokens",
        lambda: ViT((3, 32, 32), CLASSES, patch=8, width=64),
        images(128, 3, 32, 32),
    ),
    "char_gpt": Case(
        "char_gpt: GPT of width 64, depth 4, batch 32 of 64 characters",
        lambda: GPT((64,), CHARACTERS, width=64),
        lambda generator: torch.randint(CHARACTERS, (32, 64), generator=generator),
    ),
    "plasticity": Case(
        "plasticity: 4 layers of 128, batch 64",
        lambda: MLP((1, 28, 28), CLASSES, depth=4, width=128, activation="relu"),
        images(64, 1, 28, 28),
    ),
}
