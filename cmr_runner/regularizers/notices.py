"""Warnings about the caller's own loop, each given once."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

SHOWN = 5  # names in one sentence


class Notices:
    """The warnings of one regulariser. Holds only weak references to gradients."""

    def __init__(self) -> None:
        self._said: set[str] = set()
        self._left: list[tuple[weakref.ref[Tensor], int]] = []  # each .grad as it was left, and its version

    def say(self, kind: str, text: str, *, depth: int = 5) -> None:
        """depth: calls between here and the caller's own line, torch's no_grad among them."""
        if kind not in self._said:
            self._said.add(kind)
            warnings.warn(text, stacklevel=depth)

    def before_adding(self, parameters: Sequence[nn.Parameter]) -> None:
        """Gradients that nothing wrote to since the last call mean that there was no backward in between."""
        grads = [p.grad for p in parameters if p.grad is not None]
        if parameters and not grads:
            self.say(
                "no backward",
                "add_gradients() was called before any backward: there is no gradient of the task to add to, "
                "and the cap measures against it",
            )
        elif self._left and [(id(ref()), version) for ref, version in self._left] == [
            (id(grad), _version(grad)) for grad in grads
        ]:
            self.say(
                "twice",
                "add_gradients() was called twice without a backward between: the penalty's gradient is added twice. "
                "Call it once for each optimiser step",
            )

    def after_adding(self, parameters: Sequence[nn.Parameter]) -> None:
        self._left = [(weakref.ref(p.grad), _version(p.grad)) for p in parameters if p.grad is not None]

    def singular(self, kappa: Mapping[str, Tensor]) -> None:
        """Names the layers whose κ float32 cannot distinguish from infinity."""
        limit = 1 / torch.finfo(torch.float32).eps
        found = [name for name, value in kappa.items() if not bool(value < limit)]
        if found:
            self.say(
                "singular",
                f"κ is infinite at the start in {shown(found)}: the size of eps decides the gradient there; "
                "if these layers are meant to be singular, leave them out by LayerRule(exclude=[...])",
                depth=6,
            )

    def __getstate__(self) -> dict[str, Any]:  # weak references cannot be copied, and a copy has its own gradients
        return {"_said": self._said, "_left": []}


def _version(grad: Tensor) -> int:
    """How often it was written to; a distributed tensor counts this in its local piece."""
    return getattr(grad, "_local_tensor", grad)._version


def shown(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{', '.join(names[:SHOWN])}{more}"
