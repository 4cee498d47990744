"""Arguments that data sets share."""

import os
from collections.abc import Sequence
from pathlib import Path

import platformdirs

from cmr_runner.checks import integer, require

Root = str | os.PathLike[str] | None  # of the files; None: the user's cache directory
MOST_EXAMPLES = 10**8  # beyond it synthetic data would end the process, not in an error


def limit(argument: str, value: int | None) -> int | None:
    """A number of examples to keep, or None for all of them: both work as the end of a slice."""
    return None if value is None else integer(argument, value, least=1)


def example_shape(argument: str, value: object) -> tuple[int, ...]:
    sizes = tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else ()
    whole = all(isinstance(size, int) and not isinstance(size, bool) and 1 <= size <= 2**16 for size in sizes)
    allowed = "[features] or [channels, height, width], each in [1, 65536]"
    require(argument, value, len(sizes) in (1, 3) and whole, allowed)
    return sizes


def data_root(value: Root) -> Path:
    """`root` as a path; None means `data` in the user's cache directory."""
    if value is None:
        return Path(platformdirs.user_cache_dir("cmr_runner", appauthor=False)) / "data"
    named = isinstance(value, str | os.PathLike) and bool(str(value).strip())
    require("root", value, named, "a directory, or null for the user's cache")
    root = Path(value).expanduser()
    require("root", str(root), root.is_dir() or not root.exists(), "a directory")
    return root
