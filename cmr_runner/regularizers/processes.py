"""The processes that train one model together, as a regulariser sees them."""

from __future__ import annotations

from typing import Protocol

import torch.distributed as dist
from torch import Tensor


class Processes(Protocol):
    """Implemented by `Alone`, `Group` and `cmr_runner.distributed.Ranks`."""

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    def sum_(self, tensor: Tensor) -> Tensor:
        """`tensor` summed over the processes, in place."""
        ...

    def owners(self, costs: list[float]) -> list[int]:
        """The rank that computes each task."""
        ...


class Alone:
    """One process, which owns everything."""

    rank = 0
    size = 1

    def sum_(self, tensor: Tensor) -> Tensor:
        return tensor

    def owners(self, costs: list[float]) -> list[int]:
        return [0] * len(costs)


class Group:
    """The processes of a torch process group that this one belongs to."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group = group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)

    def sum_(self, tensor: Tensor) -> Tensor:
        dist.all_reduce(tensor, group=self.group)
        return tensor

    def owners(self, costs: list[float]) -> list[int]:
        return balanced(costs, self.size)


def balanced(costs: list[float], size: int) -> list[int]:
    """The rank that computes each task: the most expensive first, each to the rank with the least work so far."""
    load = [0.0] * size
    owner = [0] * len(costs)
    for task in sorted(range(len(costs)), key=lambda i: -costs[i]):
        owner[task] = min(range(size), key=lambda rank: load[rank])
        load[owner[task]] += costs[task]
    return owner
