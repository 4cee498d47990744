"""The processes that train one model together, as a regulariser sees them."""

from __future__ import annotations

from typing import Protocol

import torch.distributed as dist
from torch import Tensor


class Processes(Protocol):
    """`Group` is one, and so is `cmr_runner.distributed.Ranks`."""

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    def sum_(self, tensor: Tensor) -> Tensor:
        """`tensor` summed over the processes, in place."""
        ...

    def owners(self, costs: list[float]) -> list[int]:
        """Which process computes which task."""
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
    """The processes of one of torch's groups, this one among them."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group = group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)

    def sum_(self, tensor: Tensor) -> Tensor:
        dist.all_reduce(tensor, group=self.group)
        return tensor

    def owners(self, costs: list[float]) -> list[int]:
        return balanced(costs, self.size)


def balanced(costs: list[float], size: int) -> list[int]:
    """Which of `size` processes computes which task: the most expensive first, to whoever has the least so far."""
    load = [0.0] * size
    owner = [0] * len(costs)
    for task in sorted(range(len(costs)), key=lambda i: -costs[i]):
        owner[task] = min(range(size), key=lambda rank: load[rank])
        load[owner[task]] += costs[task]
    return owner
