"""Which layers a step evaluates: all of them, or every t-th by turns."""

from __future__ import annotations

import math
from collections.abc import Sequence

from cmr_runner.regularizers.layers import Layer


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
