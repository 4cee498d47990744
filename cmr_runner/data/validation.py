"""Checks of what a user may set under `dataset.`: an error is one line with key, value and what is allowed."""

import math
import os
from collections.abc import Sequence
from pathlib import Path

import platformdirs


def whole_number(key: str, value: object, least: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"dataset.{key} must be a whole number of at least {least}, not {value!r}")
    return value


def limit(key: str, value: object) -> int | None:
    """A number of examples to keep, or None for all of them: both work as the end of a slice."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"dataset.{key} must be a whole number of at least 1, or null for all, not {value!r}")
    return value


def finite_number(key: str, value: object, positive: bool = False) -> float:
    allowed = "a finite number above 0" if positive else "a finite number"
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"dataset.{key} must be {allowed}, not {value!r}")
    if positive and value <= 0:
        raise ValueError(f"dataset.{key} must be {allowed}, not {value!r}")
    return float(value)


def example_shape(key: str, value: object) -> tuple[int, ...]:
    # OmegaConf's lists are Sequences, though not lists.
    sizes = tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else ()
    whole = all(isinstance(size, int) and not isinstance(size, bool) and size >= 1 for size in sizes)
    if len(sizes) not in (1, 3) or not whole:
        shown = list(sizes) if sizes else value
        raise ValueError(
            f"dataset.{key} must be [features] or [channels, height, width], each at least 1, not {shown!r}"
        )
    return sizes


def data_root(value: str | os.PathLike[str] | None) -> Path:
    """`dataset.root` as a path; null means `data` in the user's cache directory."""
    if value is None:
        return Path(platformdirs.user_cache_dir("cmr_runner", appauthor=False)) / "data"
    if not isinstance(value, str | os.PathLike) or not str(value).strip():
        raise ValueError(f"dataset.root must be a directory, or null for the user's cache, not {value!r}")
    root = Path(value).expanduser()
    if root.exists() and not root.is_dir():
        raise ValueError(f"dataset.root must be a directory, not the file {str(root)!r}")
    return root
