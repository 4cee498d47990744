"""The processes that train one model together (torchrun), and what they tell each other."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from cmr_runner.regularizers.processes import balanced

T = TypeVar("T")


@dataclass(frozen=True)
class Ranks:
    """This process's number among `size`. One process alone says everything to itself, at no cost."""

    rank: int = 0
    size: int = 1

    @classmethod
    def joined(cls) -> Ranks:
        """The processes that torchrun started, this one among them. Collective."""
        if not dist.is_initialized():
            if torch.cuda.is_available():
                torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
            dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
        return cls(dist.get_rank(), dist.get_world_size())

    def leave(self) -> None:
        """The end of `joined`: nothing may be said after it."""
        dist.destroy_process_group()

    @property
    def first(self) -> bool:
        return self.rank == 0

    def share(self, batch: Tensor) -> Tensor:
        """This process's part of a batch of examples: near equal, in order."""
        return batch if self.size == 1 else batch.tensor_split(self.size)[self.rank]

    def sum_(self, tensor: Tensor) -> Tensor:
        """`tensor` summed over the processes, in place."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def any(self, flag: bool) -> bool:
        """Whether it is true for any process, so that all of them stop at the same step."""
        return flag if self.size == 1 else bool(self.sum_(torch.tensor(int(flag))))

    def gather(self, value: T) -> list[T]:
        """What each process says, by rank."""
        if self.size == 1:
            return [value]
        said: list[Any] = [None] * self.size
        dist.all_gather_object(said, value)
        return said

    def from_first(self, value: T | None) -> T:
        """What the first process says; the others' own value is not looked at."""
        said: list[Any] = [value]
        if self.size > 1:
            dist.broadcast_object_list(said, src=0)
        return said[0]

    def owners(self, costs: Sequence[float], turns: Sequence[int]) -> list[int]:
        """Which process computes which task."""
        return balanced(costs, turns, self.size)
