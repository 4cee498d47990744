"""What kind of layer a weight is, by its name: κ of an attention matrix and κ of a convolution share no scale."""

import re
from collections.abc import Mapping
from functools import cache

import numpy as np

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


def row_kinds(layers: Mapping[str, np.ndarray]) -> np.ndarray:
    """The kind of each row of layers.csv."""
    if "layer" not in layers:
        return np.array([], dtype=object)
    square = layers["rows"] == layers["cols"]
    return np.array(
        [kind_of(name, bool(flag)) for name, flag in zip(layers["layer"], square, strict=True)], dtype=object
    )
