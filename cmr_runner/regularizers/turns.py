"""Which layers a step evaluates, and the groups of one shape that they are in."""

from __future__ import annotations

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


def waits(most: int, layers: int) -> tuple[int, ...]:
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

    A large layer is a group by itself and read where it lies: to batch it would copy it, and save calls that cost
    little. A group is ordered so that the layers of every turn, in a round of any of the `lengths`, follow one another.
    """
    groups: dict[str, list[int]] = {}
    for i in sorted(own, key=lambda i: [*(i % t for t in reversed(lengths)), i]):
        m, n = layers[i].shape
        groups.setdefault(f"{m}x{n}" if m * n < LARGE else f"{m}x{n}, {layers[i].name}", []).append(i)
    found = {}
    for group, members in groups.items():
        places = [place for place, i in enumerate(members) if i % length == turn]
        if places:
            found[group] = Part([layers[i] for i in members], places[0], places[-1] + 1)
    return found
