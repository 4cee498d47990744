"""The data of a run, held in memory as tensors."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from torch import Generator, Tensor

from cmr_runner.checks import integer

# What is drawn for a number of examples, (N, ...), and the examples changed by what was drawn for them.
Draw = Callable[[int, Generator], Tensor]
Change = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Augmentation:
    """A random change of training examples. Drawing is apart, so that processes that share a batch draw the same."""

    draw: Draw
    change: Change


@dataclass(frozen=True)
class Dataset:
    """Examples and their labels.

    Classification: standardised features, float32 (N, C, H, W) or (N, features), and classes, int64 (N,).
    Next token: tokens and the ones that follow them, int64 (N, T) both; `num_classes` is the size of the vocabulary.
    """

    name: str
    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor
    num_classes: int
    val_x: Tensor | None = None  # held out of the training examples
    val_y: Tensor | None = None
    augmentation: Augmentation | None = None
    columns: Mapping[str, int] = field(default_factory=dict)  # of its own, for metrics.csv

    def __post_init__(self) -> None:
        for part, x, y in (("train", self.train_x, self.train_y), ("test", self.test_x, self.test_y)):
            kinds = (x.dtype, y.dtype)
            if kinds not in ((torch.float32, torch.int64), (torch.int64, torch.int64)):
                raise ValueError(f"{self.name}: {part} must be float32 or int64, and labels int64, not {kinds}")
            if y.shape != (x.shape[:1] if x.is_floating_point() else x.shape):
                raise ValueError(f"{self.name}: {part} has {x.shape[0]} examples, but labels {tuple(y.shape)}")
        if self.train_x.shape[1:] != self.test_x.shape[1:]:
            raise ValueError(f"{self.name}: train and test examples differ in shape")

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one example, without the batch dimension."""
        return tuple(self.train_x.shape[1:])

    @property
    def is_text(self) -> bool:
        return self.train_y.ndim == 2

    def at_epoch(self, epoch: int) -> "Dataset":
        """What an epoch trains on and is tested on: the same in every epoch, unless it is a stream of tasks."""
        return self

    def to(self, device: torch.device | str) -> "Dataset":
        values: dict[str, Any] = {each.name: getattr(self, each.name) for each in fields(self)}
        moved: dict[str, Any] = {name: v.to(device) for name, v in values.items() if isinstance(v, Tensor)}
        return replace(self, **moved)


def with_validation(data: Dataset, validation: int) -> Dataset:
    """`data` with so many training examples held out. Which ones depends on nothing: every seed has the same."""
    count = len(data.train_y)
    integer("validation", validation, least=0, most=count - 1)
    if not validation:
        return data
    order = torch.randperm(count, generator=Generator().manual_seed(0))
    held, kept = order[:validation].sort().values, order[validation:].sort().values
    return replace(
        data,
        train_x=data.train_x[kept],
        train_y=data.train_y[kept],
        val_x=data.train_x[held],
        val_y=data.train_y[held],
    )
