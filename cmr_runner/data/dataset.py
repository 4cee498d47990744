"""The data of a run, held in memory as tensors."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class Dataset:
    """Standardised features, float32 (N, C, H, W) or (N, features), and class labels, int64 (N,)."""

    name: str
    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor
    num_classes: int

    def __post_init__(self) -> None:
        for part, x, y in (("train", self.train_x, self.train_y), ("test", self.test_x, self.test_y)):
            if x.dtype != torch.float32 or y.dtype != torch.int64:
                raise ValueError(f"{self.name}: {part} must be float32 and int64, not {x.dtype} and {y.dtype}")
            if y.shape != (x.shape[0],):
                raise ValueError(f"{self.name}: {part} has {x.shape[0]} examples, but labels {tuple(y.shape)}")
        if self.train_x.shape[1:] != self.test_x.shape[1:]:
            raise ValueError(f"{self.name}: train and test examples differ in shape")

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one example, without the batch dimension."""
        return tuple(self.train_x.shape[1:])

    def to(self, device: torch.device | str) -> "Dataset":
        return replace(
            self,
            train_x=self.train_x.to(device),
            train_y=self.train_y.to(device),
            test_x=self.test_x.to(device),
            test_y=self.test_y.to(device),
        )
