"""The base class of regularisers: made for one model, they may add to its gradients after each backward."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from cmr_runner.regularizers.layers import Layer, LayerRule, find_layers
from cmr_runner.regularizers.processes import Processes
from cmr_runner.spectral import PenaltySpec, condition_number

OfLayers = tuple[Sequence[str], Tensor, Tensor | None, Tensor | None]  # names, penalty, σ_max, σ_min of layers


@dataclass(frozen=True, repr=False)
class StepNumbers:
    """What a regulariser did in one step. Tensors stay on their device: only reading them synchronises."""

    norm_task: Tensor  # ‖g_task‖ over all parameters
    norm_spec: Tensor  # ‖g̃‖, as it was added
    cap: Tensor  # γ <= 1; below 1 the cap was active
    lambda_t: float
    skipped: int  # layers left out of this step because their decomposition failed
    fallbacks: int  # layers that failed the engine's own check and were computed another way
    # As of each layer's last evaluation, later ones behind; what follows from these is computed when asked for.
    of_layers: Sequence[OfLayers]
    layers: Sequence[str]  # all names, in the model's order

    @cached_property
    def penalty(self) -> Tensor:
        """Σ_layers of the penalty, without λ."""
        values: dict[str, Tensor] = {}
        for names, value, _, _ in self.of_layers:
            values.update(zip(names, value.unbind(), strict=True))
        return torch.stack(list(values.values())).sum() if values else torch.zeros(())

    @cached_property
    def kappa(self) -> Tensor:
        """κ of the layers, from the engine's σ_max and σ_min; empty if the penalty does not compute both."""
        kappa = self.kappa_by_layer()
        return torch.stack(list(kappa.values())) if kappa else torch.empty(0)

    def kappa_by_layer(self) -> dict[str, Tensor]:
        known: dict[str, Tensor] = {}
        for names, _, sigma_max, sigma_min in self.of_layers:
            if sigma_max is not None and sigma_min is not None:
                known.update(zip(names, condition_number(torch.stack([sigma_max, sigma_min], -1)), strict=True))
        return {name: known[name] for name in self.layers if name in known}

    def numbers(self) -> dict[str, float]:
        """The same as plain numbers, to be logged; of κ the mean and the maximum over the layers."""
        names = ("norm_task", "norm_spec", "cap", "lambda_t", "penalty", "skipped", "fallbacks")
        kappa = self.kappa
        of_kappa = {"kappa_mean": float(kappa.mean()), "kappa_max": float(kappa.max())} if len(kappa) else {}
        return {name: float(getattr(self, name)) for name in names} | of_kappa

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{key}={value:.4g}' for key, value in self.numbers().items())})"


class PlanRow(NamedTuple):
    layer: str
    shape: tuple[int, int]
    method: str


class Plan(list[PlanRow]):
    """The method for each layer. Prints as a table."""

    def __repr__(self) -> str:
        cells = [(layer, f"{m} × {n}", method) for layer, (m, n), method in self]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        rows = (tuple(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells)
        return "\n".join("  ".join(row).rstrip() for row in rows)


class Regularizer:
    """Does nothing: `regularizer=none`, and the base class of all others.

    `layers` says which weights count; the same ones are measured at each epoch's end, with `measure` for K and ε.
    """

    measure = PenaltySpec()
    method = "none"
    last: StepNumbers | None = None

    def __init__(
        self, model: nn.Module, *, layers: LayerRule | None = None, steps_per_epoch: int = 1, seed: int = 0
    ) -> None:
        self.model = model
        self.rule = layers if layers is not None else LayerRule()
        self.layers: list[Layer] = find_layers(model, self.rule)

    @property
    def plan(self) -> Plan:
        """The method for each layer."""
        return Plan(PlanRow(layer.name, layer.shape, self._method_of(layer)) for layer in self.layers)

    def _method_of(self, layer: Layer) -> str:
        return self.method

    def divide_over(self, processes: Processes) -> None:
        """Called once if several processes train one model: they may share the work on the layers."""

    def start(self) -> None:
        """Called before the forward of a step: work that needs only the weights may begin here."""

    def add_gradients(self) -> None:
        """Called after backward, before the clip and the optimiser step."""

    def epoch_columns(self) -> dict[str, float]:
        """Additional columns for metrics.csv."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass
