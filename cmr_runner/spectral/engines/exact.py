"""The reference engine: an SVD of every matrix, every step."""

from typing import Any

import torch
from torch import Tensor

from cmr_runner.spectral.decomposition import DecompositionError
from cmr_runner.spectral.penalty import LayerPenalty, PenaltySpec, exact_penalty


class ExactEngine:
    """Closed-form penalty from the SVD of W, same-shape layers as one batch. Carries nothing between steps."""

    name = "exact"

    def name_for(self, shape: tuple[int, int]) -> str:
        return self.name

    def penalty(self, W: Tensor, spec: PenaltySpec, *, group: str = "", step: int = 0) -> LayerPenalty:
        try:
            return exact_penalty(W, spec)
        except DecompositionError:
            return _one_by_one(W, spec)

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


def _one_by_one(W: Tensor, spec: PenaltySpec) -> LayerPenalty:
    """The batch again, matrix by matrix: one that does not converge is left out of this step and counted."""
    parts = []
    for A in W:
        try:
            parts.append(exact_penalty(A, spec))
        except DecompositionError:
            parts.append(_nothing(A, spec))
    return stacked(parts)


def _nothing(A: Tensor, spec: PenaltySpec) -> LayerPenalty:
    zero, nan = A.new_zeros(()), A.new_full((), torch.nan)
    return LayerPenalty(zero, torch.zeros_like(A), nan, nan, nan.expand(spec.K + 1), nan, nan, skipped=1)


def stacked(parts: list[LayerPenalty]) -> LayerPenalty:
    """Single-matrix penalties as one batch."""
    names = ("value", "gradient", "rho_cond", "rho_moment", "moments", "sigma_max", "sigma_min")
    columns = {name: torch.stack([getattr(part, name) for part in parts]) for name in names}
    return LayerPenalty(**columns, skipped=sum(part.skipped for part in parts))
