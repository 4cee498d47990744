"""The processes that train one model together, as a regulariser sees them."""

from __future__ import annotations

from collections.abc import Sequence
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

    def owners(self, costs: Sequence[float], turns: Sequence[int]) -> list[int]:
        """The rank that computes each task: `balanced`."""
        ...


class Alone:
    """One process, which owns everything."""

    rank = 0
    size = 1

    def sum_(self, tensor: Tensor) -> Tensor:
        return tensor

    def owners(self, costs: Sequence[float], turns: Sequence[int]) -> list[int]:
        return [0] * len(costs)


class Group:
    """The processes of a torch process group that this one belongs to."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group = group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)

    def sum_(self, tensor: Tensor) -> Tensor:
        dist.all_reduce(tensor, group=self.group)
        return tensor

    def owners(self, costs: Sequence[float], turns: Sequence[int]) -> list[int]:
        return balanced(costs, turns, self.size)


def balanced(costs: Sequence[float], turns: Sequence[int], size: int) -> list[int]:
    """The rank that computes each task, those of every turn divided evenly, and so is what the ranks keep of them.

    Of a turn the most expensive first, each to the rank with the least work so far in this turn, or else in all.
    """
    owner = [0] * len(costs)
    in_all = [0.0] * size
    for turn in sorted(set(turns)):
        load = [0.0] * size
        for task in sorted((i for i in range(len(costs)) if turns[i] == turn), key=lambda i: -costs[i]):
            rank = min(range(size), key=lambda rank: (load[rank], in_all[rank]))
            owner[task] = rank
            load[rank] += costs[task]
            in_all[rank] += costs[task]
    return owner
