"""What an engine is."""

from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from cmr_runner.spectral.penalty import LayerPenalty, PenaltySpec


@runtime_checkable
class Engine(Protocol):
    """Computes the penalty of same-shape matrices W (B, m, n) as one batch.

    What it carries from step to step (warm-start vectors) is kept by `group`, a name for the batch that stays the
    same from step to step, and travels in its state_dict; what it draws at random depends on (seed, group, step)
    alone. So a resumed run equals an uninterrupted one bit for bit.

    An engine that keeps anything has `forget(group)` too, which drops what it keeps of a group: it is called when other
    layers take the place of those in it. One with an attribute `turns` may be given every so many-th layer at a step.
    Its `penalty` takes place=(first, of): W is then the group's matrices from that place on, of so many. That of one
    with an attribute `refresh` takes fresh=True: nothing of an earlier evaluation may be held for these matrices.
    """

    name: str

    def __init__(self, *, seed: int = 0) -> None: ...

    def name_for(self, shape: tuple[int, int]) -> str:
        """The engine that serves matrices of this (m, n): `name`, but for `auto`."""
        ...

    def penalty(self, W: Tensor, spec: PenaltySpec, *, group: str, step: int) -> LayerPenalty: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...
