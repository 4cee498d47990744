"""Bansal et al.'s penalties on AᵀA − I, where A is W with its short side as columns."""

from __future__ import annotations

from typing import Any, Unpack

import torch
from torch import Tensor, nn

from cmr_runner.regularizers.gradient_penalty import GradientPenalty, PenaltyOptions
from cmr_runner.regularizers.mixing import squared_norm
from cmr_runner.regularizers.power_iteration import PowerIteration, outer, row_times, times_column, unit_or
from cmr_runner.spectral.penalty import Penalty


class SoftOrthogonality(GradientPenalty):
    """‖AᵀA − I‖_F², gradient 4 A(AᵀA − I): pulls every singular value towards one.

    Departure: the authors use WᵀW also for wide weights, where it has rank m < n and can never be I.
    """

    method = "soft_orthogonality"

    def penalty(self, W: Tensor, *, group: str) -> Penalty:
        wide = W.shape[-2] < W.shape[-1]
        M = W @ W.mT if wide else W.mT @ W
        M.diagonal(dim1=-2, dim2=-1).sub_(1)
        gradient = M @ W if wide else W @ M
        return Penalty(value=squared_norm(M), dense=gradient.mul_(4))


class SRIP(GradientPenalty):
    """Spectral restricted isometry: ‖AᵀA − I‖₂, by `iterations` power iterations per step on AᵀA − I.

    With unit x and y = Mx/‖Mx‖, M = AᵀA − I: value ‖Mx‖, gradient (Ay)xᵀ + (Ax)yᵀ, which at an eigenvector is
    ±2(Ax)xᵀ. The authors differentiate through two iterations from a random vector; here the vector is kept from step
    to step and is a constant in the derivative. Wide weights as in SoftOrthogonality.
    """

    method = "srip"

    def __init__(self, model: nn.Module, *, lam: float, iterations: int = 2, **options: Unpack[PenaltyOptions]) -> None:
        super().__init__(model, lam=lam, **options)
        self.power = PowerIteration(deviation_norm, iterations, options.get("seed", 0))

    def penalty(self, W: Tensor, *, group: str) -> Penalty:
        wide = W.shape[-2] < W.shape[-1]
        value, gradient, _ = self.power(W.mT if wide else W, group, min(W.shape[-2:]))
        return Penalty(value=value, dense=gradient.mT if wide else gradient)

    def forget(self, group: str) -> None:
        self.power.forget(group)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "power": self.power.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.power.load_state_dict(state["power"])


def deviation_norm(A: Tensor, x: Tensor, iterations: int) -> tuple[Tensor, Tensor, Tensor]:
    """(‖Mx‖, its gradient in A at fixed x and y, y) of M = AᵀA − I, A (B, m, r), after `iterations` x ← Mx/‖Mx‖.

    M has eigenvalues of both signs. Where λ and −λ are both extreme, x settles in their common span: a Rayleigh
    quotient would then read anything in between, while ‖Mx‖ is still ‖M‖₂.
    """
    for _ in range(iterations):
        x = unit_or(row_times(times_column(A, x), A) - x, x)
    Ax = times_column(A, x)
    Mx = row_times(Ax, A) - x
    y = unit_or(Mx, x)
    gradient = torch.addcmul(outer(Ax, y), times_column(A, y).unsqueeze(-1), x.unsqueeze(-2))
    return torch.linalg.vector_norm(Mx, dim=-1), gradient, y
