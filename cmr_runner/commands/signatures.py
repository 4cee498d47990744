"""The keys and values of a YAML, checked against the signature of what it builds, before anything is built.

One rule for every group, a user's own too: a value must fit the annotation of its argument. Ranges are the
constructors' business. An argument without an annotation takes any value.
"""

import inspect
import math
import os
import types
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from cmr_runner.checks import ArgumentError

LARGEST = 2**63  # torch's and numpy's sizes are 64-bit
ENDS = (object, nn.Module)  # their **options go nowhere


def check_arguments(target: Callable[..., Any], options: Mapping[str, Any], given: Collection[str]) -> None:
    """Raise ArgumentError for an option that `target` does not take, that is missing, or whose value does not fit.

    `given` are the arguments that the runner passes itself, so a YAML cannot.
    """
    parameters, takes_any = _parameters(target)
    settable = [name for name in parameters if name not in given]
    for key, value in options.items():
        if key in given or not (takes_any or key in parameters):
            known = ", ".join(settable) or "no keys"
            raise ArgumentError(key, f"{key}={value}: no such key; {_name(target)} takes {known}")
        if isinstance(value, str) and value == "???":
            raise ArgumentError(key, f"{key} must be given: {key}=…")
        if key in parameters:
            check_value(key, value, parameters[key].annotation)
    for name in settable:
        if parameters[name].default is inspect.Parameter.empty and name not in options:
            raise ArgumentError(name, f"{name} must be given: {name}=…")


def check_value(argument: str, value: Any, annotation: Any) -> None:
    """Raise ArgumentError unless a YAML's value fits one of the annotation's alternatives."""
    kinds = _alternatives(annotation)
    if not any(_fits(value, kind) for kind in kinds):
        allowed = " or ".join(dict.fromkeys(_words(kind, value) for kind in kinds))
        raise ArgumentError(argument, f"{argument} must be {allowed}, got {value!r}")


def _parameters(target: Callable[..., Any]) -> tuple[dict[str, inspect.Parameter], bool]:
    """What a target takes by name, annotations resolved, and whether it takes other names as well.

    A class that passes its **options on takes those of its parents too.
    """
    if not inspect.isclass(target):
        found = _own_parameters(target)
        return _named(found), any(p.kind is p.VAR_KEYWORD for p in found.values())
    found = {}
    for cls in target.__mro__:
        if cls in ENDS or "__init__" not in vars(cls):
            continue
        own = _own_parameters(vars(cls)["__init__"])
        del own[next(iter(own))]  # self
        found = own | found
        if not any(p.kind is p.VAR_KEYWORD for p in own.values()):
            break
    return _named(found), False


def _named(parameters: dict[str, inspect.Parameter]) -> dict[str, inspect.Parameter]:
    return {name: p for name, p in parameters.items() if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}


def _own_parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    names = getattr(inspect.unwrap(function), "__globals__", {})
    parameters = inspect.signature(function).parameters
    return {name: p.replace(annotation=_resolved(p.annotation, names)) for name, p in parameters.items()}


def _resolved(annotation: Any, names: dict[str, Any]) -> Any:
    """An annotation that is text (`from __future__ import annotations`) as the type it names, if that is imported."""
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, names)  # the constructor's own source
    except (NameError, AttributeError, TypeError, SyntaxError):
        return Any


def _alternatives(annotation: Any) -> list[Any]:
    """The members of a union; a Tensor cannot be written in a YAML."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return [kind for member in typing.get_args(annotation) for kind in _alternatives(member)]
    if typing.get_origin(annotation) is typing.Annotated:
        return _alternatives(typing.get_args(annotation)[0])
    return [] if annotation is Tensor else [annotation]


def _fits(value: Any, kind: Any) -> bool:
    origin, arguments = typing.get_origin(kind) or kind, typing.get_args(kind)
    if origin is typing.Literal:
        return any(type(value) is type(allowed) and value == allowed for allowed in arguments)
    if kind is None or kind is types.NoneType:
        return value is None
    if kind is bool:
        return isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) < LARGEST
    if kind is float:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return number and (not math.isnan(value) if isinstance(value, float) else abs(value) < LARGEST)
    if kind in (str, Path) or origin is os.PathLike:
        return isinstance(value, str)
    if not inspect.isclass(origin) or origin in (Any, object, inspect.Parameter.empty):
        return True  # also a type variable
    if issubclass(origin, Sequence):
        return isinstance(value, list) and _items_fit(value, origin, arguments)
    if issubclass(origin, Mapping):
        return isinstance(value, dict)
    return isinstance(value, dict) and "_target_" in value  # an object, described by a node of its own


def _items_fit(values: list[Any], origin: type, arguments: tuple[Any, ...]) -> bool:
    if not arguments:
        return True
    if issubclass(origin, tuple) and arguments[-1] is not Ellipsis:
        kinds = list(arguments)
        return len(values) == len(kinds) and all(map(_any_fits, values, kinds))
    return all(_any_fits(value, arguments[0]) for value in values)


def _any_fits(value: Any, annotation: Any) -> bool:
    return any(_fits(value, kind) for kind in _alternatives(annotation))


def _words(kind: Any, value: Any = None) -> str:
    """What a user may write for it."""
    origin, arguments = typing.get_origin(kind) or kind, typing.get_args(kind)
    if origin is typing.Literal:
        return f"one of {', '.join(map(str, arguments))}"
    if kind is None or kind is types.NoneType:
        return "null"
    if kind in (int, float) and isinstance(value, int) and abs(value) >= LARGEST:
        return "an integer of at most 64 bits"
    plain = {bool: "true or false", int: "an integer", float: "a number", str: "text", Path: "a path"}
    if kind in plain:
        return plain[kind]
    if origin is os.PathLike:
        return "a path"
    if issubclass(origin, Sequence):
        if issubclass(origin, tuple) and arguments and arguments[-1] is not Ellipsis:
            return f"a list of {len(arguments)} {' and '.join(dict.fromkeys(map(_item_words, arguments)))}"
        return f"a list of {_item_words(arguments[0])}" if arguments else "a list"
    return "a group of keys" if issubclass(origin, Mapping) else f"a group of keys with a _target_ ({origin.__name__})"


def _item_words(annotation: Any) -> str:
    words = [_words(kind) for kind in _alternatives(annotation)]
    plural = {"an integer": "integers", "a number": "numbers", "text": "texts", "a path": "paths"}
    return " or ".join(plural.get(word, word) for word in words)


def _name(target: Callable[..., Any]) -> str:
    return f"{target.__module__}.{getattr(target, '__qualname__', type(target).__name__)}"
