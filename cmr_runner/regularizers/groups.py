"""The layers of one evaluation in groups of one shape, and the weights of each group as one batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cmr_runner.regularizers.layers import Layer
from cmr_runner.regularizers.mixing import HALF
from cmr_runner.regularizers.turns import Rounds
from cmr_runner.spectral.engines.chunks import LARGE


class Part(NamedTuple):
    """The members [first, stop) of a group: those of it that a step evaluates."""

    members: list[Layer]
    first: int
    stop: int

    @property
    def layers(self) -> list[Layer]:
        return self.members[self.first : self.stop]


class Groups:
    """The groups of this evaluation, and what is known of them from the ones before."""

    def __init__(self) -> None:
        self.parts: dict[str, Part] = {}  # of this evaluation
        self.members: dict[str, list[str]] = {}  # the layers that a group's kept state is of
        self._known: dict[tuple[Any, ...], dict[str, Part]] = {}  # by which layers in which turn
        self._stacks: dict[str, Tensor] = {}  # where a group's weights are gathered

    def take(self, layers: Sequence[Layer], own: Sequence[int], rounds: Rounds, step: int) -> None:
        """From now on the groups of those layers[own] whose turn it is at `step`."""
        turn = (rounds.length, step % rounds.length)
        key = (*own, turn)
        if key not in self._known:
            self._known[key] = parts(layers, own, rounds.lengths, *turn)
        self.parts = self._known[key]

    def changed(self) -> Iterator[tuple[str, set[str]]]:
        """The groups whose members are others than at the evaluation before, and who left them."""
        for group, part in self.parts.items():
            names = [layer.name for layer in part.members]
            before = self.members.get(group, names)
            self.members[group] = names
            if before != names:
                yield group, set(before) - set(names)

    def parametrised(self, group: str) -> bool:
        """Whether a weight of this evaluation's part of the group is; of an unknown group none is."""
        part = self.parts.get(group)
        return part is not None and any(layer.weight.is_parametrised for layer in part.layers)

    def start_anew(self) -> None:
        """The names may be the same afterwards, the weights are not."""
        self._known = {}
        self.members = {group: [] for group in self.members}

    def stacked(self, group: str, effective: dict[str, Tensor]) -> Tensor:
        """The group's weights as one batch (B, m, n): a view of a single one, else gathered in a kept buffer.

        Within a task, where no gradient is recorded. effective: weights that were made or gathered for this step.
        """
        part, matrices = self.parts[group], []
        for layer in part.layers:
            weight = layer.weight
            tensor = effective[weight.name] if weight.name in effective else weight.effective()
            matrix = weight.matrix(tensor, layer.index)
            matrices.append(matrix.float() if matrix.dtype in HALF else matrix)
        if len(matrices) == 1:
            return matrices[0].unsqueeze(0)
        shape, like = (len(part.members), *matrices[0].shape), matrices[0]
        kept = self._stacks.get(group)
        if kept is None or kept.shape != shape or kept.dtype != like.dtype or kept.device != like.device:
            self._stacks[group] = kept = like.new_empty(shape)
        return torch.stack(matrices, out=kept[part.first : part.stop])


def parts(
    layers: Sequence[Layer], own: Sequence[int], lengths: Sequence[int], length: int, turn: int
) -> dict[str, Part]:
    """Of the groups of layers[own] the parts that one turn of a round takes: layers[turn::length].

    Where layers take turns a large one is a group by itself and read where it lies: to batch it would copy it, and save
    calls that cost little. A group is ordered so that the layers of every turn, in a round of any of the `lengths`,
    follow one another.
    """
    groups: dict[str, list[int]] = {}
    for i in sorted(own, key=lambda i: [*(i % t for t in reversed(lengths)), i]):
        m, n = layers[i].shape
        alone = len(lengths) > 1 and m * n >= LARGE
        groups.setdefault(f"{m}x{n}, {layers[i].name}" if alone else f"{m}x{n}", []).append(i)
    found = {}
    for group, members in groups.items():
        places = [place for place, i in enumerate(members) if i % length == turn]
        if places:
            found[group] = Part([layers[i] for i in members], places[0], places[-1] + 1)
    return found
