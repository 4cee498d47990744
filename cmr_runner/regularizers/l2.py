"""Weight decay as a penalty."""

from __future__ import annotations

from typing import Unpack

from torch import Tensor, nn

from cmr_runner.regularizers.gradient_penalty import GradientPenalty, PenaltyOptions
from cmr_runner.regularizers.mixing import squared_norm
from cmr_runner.spectral.penalty import Penalty


class L2(GradientPenalty):
    """½‖W‖_F², gradient W: `lam` is the weight decay. Added to the gradient (not decoupled as in AdamW).

    Uncapped unless told otherwise, because that is what L2 means elsewhere.
    """

    method = "l2"

    def __init__(self, model: nn.Module, *, lam: float = 1e-4, **options: Unpack[PenaltyOptions]) -> None:
        super().__init__(model, lam=lam, **{"mixing": "uncapped", **options})  # type: ignore[arg-type]

    def penalty(self, W: Tensor, *, group: str) -> Penalty:
        return Penalty(value=squared_norm(W) / 2, dense=W.clone())
