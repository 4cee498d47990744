"""What kind of layer a weight is, by its name: κ of an attention matrix and κ of a convolution share no scale."""

import re
from collections.abc import Sequence
from functools import cache

import numpy as np

from cmr_runner.results.reading import Run

# In the order in which they are drawn; the first pattern that is found in the name counts.
KINDS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("embedding", re.compile(r"^embedding\b")),
    ("convolution", re.compile(r"^first\b|\bconv")),
    ("attention q, k, v", re.compile(r"\.[qkv]$")),
    ("attention q, k, v by head", re.compile(r"\.[qkv]\.h\d+$")),
    ("attention output", re.compile(r"\bout_proj\b")),
    ("MLP", re.compile(r"\blinear[12]\b")),
    ("head", re.compile(r"^head\b")),
)
SQUARE, OBLONG = "square", "not square"  # of a layer whose name says nothing: a square one is the worse conditioned
ORDER = (*(kind for kind, _ in KINDS), SQUARE, OBLONG)


@cache
def kind_of(layer: str, square: bool) -> str:
    return next((kind for kind, pattern in KINDS if pattern.search(layer)), SQUARE if square else OBLONG)


def row_kinds(run: Run) -> np.ndarray:
    """The kind of each row of layers.csv."""
    table = run.layers
    if "layer" not in table:
        return np.array([], dtype=object)
    square = table["rows"] == table["cols"]
    return np.array(
        [kind_of(name, bool(flag)) for name, flag in zip(table["layer"], square, strict=True)], dtype=object
    )


def kinds_in(runs: Sequence[Run]) -> list[str]:
    """The kinds of layers that the runs log."""
    found = {kind for run in runs for kind in row_kinds(run)}
    return [kind for kind in ORDER if kind in found]
