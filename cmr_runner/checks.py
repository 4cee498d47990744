"""Checks of arguments, with one wording for all of them: the argument, what is allowed, what was given.

They name the bare argument, because a library's caller knows no configuration file; the commands add the group.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, TypeVar

T = TypeVar("T")


class ArgumentError(ValueError):
    """A value that its argument does not allow. `argument` is its bare name, which the message starts with."""

    def __init__(self, argument: str, message: str) -> None:
        super().__init__(message)
        self.argument = argument

    def __reduce__(self) -> tuple[Any, ...]:  # worker processes send errors home by pickle
        return type(self), (self.argument, str(self))


def require(argument: str, value: object, holds: bool, allowed: str) -> None:
    """Raise ArgumentError unless `holds`. NaN fails every comparison, so a range refuses it too."""
    if not holds:
        raise ArgumentError(argument, f"{argument} must be {allowed}, got {value!r}")


def number(
    argument: str,
    value: Any,
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
    finite: bool = True,
) -> float:
    """`value` if it is a real number in the range; `finite=False` admits infinity (never NaN)."""
    allowed = _range(least, above, most, below)
    kind = f"a number {allowed}".rstrip()
    require(argument, value, isinstance(value, Real) and not isinstance(value, bool), kind)
    require(
        argument,
        value,
        not math.isnan(value) and (not finite or math.isfinite(value)),
        f"a finite number {allowed}".rstrip(),
    )
    require(argument, value, _inside(value, least, above, most, below), allowed)
    return value


def integer(argument: str, value: Any, *, least: int | None = None, most: int | None = None) -> int:
    """`value` if it is an integer (True is not) in the range."""
    allowed = f"an integer {_range(least, None, most, None)}".rstrip()
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    require(argument, value, whole and _inside(value, least, None, most, None), allowed)
    return value


def boolean(argument: str, value: Any) -> bool:
    require(argument, value, isinstance(value, bool), "true or false")
    return value


def one_of(argument: str, value: T, allowed: Sequence[T]) -> T:
    require(argument, value, value in allowed, f"one of {', '.join(map(str, allowed))}")
    return value


def _range(least: float | None, above: float | None, most: float | None, below: float | None) -> str:
    """`>= 0`, `< 1`, `in (0, 1]` or nothing."""
    low = None if least is None and above is None else (f"[{least}" if least is not None else f"({above}")
    high = None if most is None and below is None else (f"{most}]" if most is not None else f"{below})")
    if low and high:
        return f"in {low}, {high}"
    if low:
        return f">= {least}" if least is not None else f"> {above}"
    if high:
        return f"<= {most}" if most is not None else f"< {below}"
    return ""


def _inside(value: float, least: float | None, above: float | None, most: float | None, below: float | None) -> bool:
    return (
        (least is None or value >= least)
        and (above is None or value > above)
        and (most is None or value <= most)
        and (below is None or value < below)
    )
