"""Miyato et al.'s spectral normalisation, alone and under CMR."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.nn.utils import parametrizations

from cmr_runner.checks import integer
from cmr_runner.regularizers.base import Regularizer
from cmr_runner.regularizers.cmr import CMR
from cmr_runner.regularizers.layers import LayerRule
from cmr_runner.regularizers.parametrised import parametrise_


class SpectralNorm(Regularizer):
    """W/σ(W) in place of W, by torch's parametrisation: one power iteration in each forward of training.

    The constructor parametrises the model, so that an optimiser made afterwards trains the raw weights, and the model's
    state_dict holds them together with the power iteration's vectors. The scale of the initialisation cancels: every
    layer starts at σ_max = 1. A fused q, k, v weight is normalised as one matrix.
    """

    method = "spectral_norm"

    def __init__(
        self,
        model: nn.Module,
        *,
        power_iterations: int = 1,
        layers: LayerRule | None = None,
        steps_per_epoch: int = 1,
        seed: int = 0,
    ) -> None:
        spectral_normalise_(model, power_iterations, layers, seed)
        super().__init__(model, layers=layers, steps_per_epoch=steps_per_epoch, seed=seed)


class SpectralNormCMR(CMR):
    """SN + CMR: the penalty of the effective weight, whose gradient reaches the raw weight by the chain rule.

    In that chain rule u and v of the power iteration are constants, as in the task's own gradient.
    """

    method = "spectral_norm + cmr"

    def __init__(self, model: nn.Module, *, power_iterations: int = 1, **options: Any) -> None:
        spectral_normalise_(model, power_iterations, options.get("layers"), options.get("seed", 0))
        super().__init__(model, **options)


def spectral_normalise_(model: nn.Module, power_iterations: int, rule: LayerRule | None, seed: int) -> None:
    integer("power_iterations", power_iterations, least=1)
    parametrise_(
        model,
        rule,
        seed,
        lambda weight: parametrizations.spectral_norm(
            weight.module, weight.attribute, n_power_iterations=power_iterations
        ),
    )
