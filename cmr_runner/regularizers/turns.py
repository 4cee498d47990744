"""Which layers a step evaluates, and the groups of one shape that they are in."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from cmr_runner.regularizers.layers import Layer
from cmr_runner.spectral.engines.chunks import LARGE


class Part(NamedTuple):
    """The members [first, stop) of a group: those of it that a step evaluates."""

    members: list[Layer]
    first: int
    stop: int

    @property
    def layers(self) -> list[Layer]:
        return self.members[self.first : self.stop]


class Rounds:
    """Rounds of t steps in which each layer has one turn: the step takes layers[step % t::t].

    t changes only where a round of the old length ends and one of the new length begins. So each layer has had as many
    turns as the others, whatever the gradients do meanwhile.
    """

    def __init__(self, lengths: Sequence[int] = (1,)) -> None:
        self.lengths = tuple(lengths)  # that a round may have, from the longest down to 1
        self.length = 1  # t: all norms have to be known first
        self.norms: dict[str, float] = {}  # of each layer's gradient, at its last turn

    @property
    def more_than_one(self) -> bool:
        return len(self.lengths) > 1

    def in_turn(self, layers: Sequence[Layer], step: int) -> Sequence[Layer]:
        return layers[step % self.length :: self.length]

    def next_length(self, step: int, layers: Sequence[Layer], most: float) -> int:
        """t of a round that begins at `step`: the longest no turn of which adds more than `most`.

        A turn adds t times the gradients of its layers.
        """
        squares = [0.0 if layer.frozen else self.norms.get(layer.name, math.inf) ** 2 for layer in layers]
        for t in self.lengths:
            if step % t == 0 and t * math.sqrt(max(sum(squares[turn::t]) for turn in range(t))) <= most:
                return t
        return 1


def round_lengths(most: int, layers: int) -> tuple[int, ...]:
    """The lengths that a round of turns may have, in steps: from `most`, or as far as each step has a layer, down to 1.

    Each divides the one before, so that a long round takes the turns of a short one in smaller parts. With fewer layers
    than `most` only lengths without a prime factor above 3 count: 7 could be followed by nothing but 1.
    """
    if most > layers:
        most = next((t for t in range(layers, 0, -1) if pow(6, t, t) == 0), 1)
    found = [most]
    while found[-1] > 1:
        found.append(found[-1] // next(p for p in range(2, found[-1] + 1) if found[-1] % p == 0))
    return tuple(found)


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
