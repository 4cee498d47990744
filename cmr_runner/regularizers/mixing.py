"""Decoupled, capped mixing: how a penalty's gradient is added to the task's without dominating it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from cmr_runner.checks import number, one_of

Mixing = Literal["penalty_cap", "algorithm1", "uncapped"]

DELTA = 1e-12  # the paper's δ, in the cap's denominator
HALF = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class CappedMixing:
    """g = g_task + g̃,  ‖g̃‖ <= ρ_spec ‖g_task‖,  with λ_t = λ · min(1, t / T_w).

    The paper allows two readings, which differ in what is capped:

    - `penalty_cap` (its Section 2, the default): λ_t g.      g̃ = min(1, ρ‖g_task‖ / (‖λ_t g‖ + δ)) λ_t g
    - `algorithm1`: g, which is then multiplied by λ_t.       g̃ = λ_t min(1, ρ‖g_task‖ / (‖g‖ + δ)) g
    - `uncapped`, for ablations:                              g̃ = λ_t g
    """

    lam: float
    rho_spec: float = 0.5
    mixing: Mixing = "penalty_cap"
    warmup_steps: float = 0.0

    def __post_init__(self) -> None:
        number("lam", self.lam, least=0)
        number("rho_spec", self.rho_spec, above=0, most=1)
        number("warmup_steps", self.warmup_steps, least=0)
        one_of("mixing", self.mixing, get_args(Mixing))

    def lambda_at(self, step: int) -> float:
        """λ_t = λ · min(1, t / T_w)."""
        return self.lam * min(1.0, step / self.warmup_steps) if self.warmup_steps > 0 else self.lam

    def factor(self, norm_task: Tensor, norm_spec: Tensor, lambda_t: float) -> tuple[Tensor, Tensor]:
        """(the factor that makes g̃ of g, the cap γ <= 1 in it), scalars."""
        if self.mixing == "uncapped":
            gamma = torch.ones_like(norm_task)
        else:
            gamma = (self.rho_spec * norm_task / (self.compared(lambda_t) * norm_spec + DELTA)).clamp_max(1.0)
        return lambda_t * gamma, gamma

    def compared(self, lambda_t: float) -> float:
        """What multiplies ‖g‖ where it is compared with ρ‖g_task‖."""
        return 1.0 if self.mixing == "algorithm1" else lambda_t


def global_norm(tensors: list[Tensor]) -> Tensor:
    """‖·‖₂ of all tensors as one vector; 0 if there are none."""
    if not tensors:
        return torch.zeros(())
    return torch.linalg.vector_norm(torch.stack(norms(tensors)))


def norms(tensors: list[Tensor]) -> list[Tensor]:
    """‖·‖₂ of each tensor, in float32 or better: in float16 δ is 0, and squares overflow from 256 on."""
    if not any(tensor.dtype in HALF for tensor in tensors):
        return list(torch._foreach_norm(tensors))
    return [torch.linalg.vector_norm(t, dtype=torch.promote_types(t.dtype, torch.float32)) for t in tensors]


def squared_norm(W: Tensor) -> Tensor:
    """‖W‖_F² of each matrix, (..., m, n) -> (...), without a temporary of W's size."""
    return torch.linalg.vector_norm(W, dim=(-2, -1)).square()
