"""Penalties on the largest singular value, which is found by warm-started power iteration."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Unpack

import torch
from torch import Tensor, nn

from cmr_runner.checks import number
from cmr_runner.regularizers.gradient_penalty import GradientPenalty, PenaltyOptions
from cmr_runner.regularizers.mixing import squared_norm
from cmr_runner.regularizers.power_iteration import PowerIteration, leading_pair, outer
from cmr_runner.spectral.penalty import Penalty


class SigmaMaxPenalty(GradientPenalty):
    """f(σ_max), gradient f'(σ) u vᵀ with u, v from `iterations` power iterations per step from the last vectors.

    At a repeated σ_max any of its pairs is a valid Clarke subgradient.
    """

    def __init__(self, model: nn.Module, *, lam: float, iterations: int = 1, **options: Unpack[PenaltyOptions]) -> None:
        super().__init__(model, lam=lam, **options)
        self.power = PowerIteration(leading_pair, iterations, options.get("seed", 0))

    @abstractmethod
    def of_sigma_max(self, sigma: Tensor) -> tuple[Tensor, Tensor]:
        """f(σ) and f'(σ), each (B,)."""

    def penalty(self, W: Tensor, *, group: str) -> Penalty:
        sigma, u, v = self.power(W, group, W.shape[-1])
        value, slope = self.of_sigma_max(sigma)
        return Penalty(value=value, dense=outer(slope.unsqueeze(-1) * u, v))

    def forget(self, group: str) -> None:
        self.power.forget(group)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "power": self.power.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.power.load_state_dict(state["power"])


class SpectralPenalty(SigmaMaxPenalty):
    """Yoshida and Miyato's spectral norm regularisation: ½σ_max², gradient σ u vᵀ.

    They draw a new random vector at each step; here the last one is kept, which is more exact at equal cost.
    """

    method = "spectral_penalty"

    def of_sigma_max(self, sigma: Tensor) -> tuple[Tensor, Tensor]:
        return sigma.square() / 2, sigma


class SigmaOne(SigmaMaxPenalty):
    """Lewandowski et al.: (σ_max^k − 1)², gradient 2(σ^k − 1) k σ^(k−1) u vᵀ. Keeps the largest value at one."""

    method = "sigma_one"

    def __init__(
        self, model: nn.Module, *, lam: float, k: float = 2, iterations: int = 1, **options: Unpack[PenaltyOptions]
    ) -> None:
        super().__init__(model, lam=lam, iterations=iterations, **options)
        self.k = number("k", k, least=1, most=16)  # below 1 the slope is infinite at σ = 0

    def of_sigma_max(self, sigma: Tensor) -> tuple[Tensor, Tensor]:
        excess = sigma**self.k - 1
        return excess.square(), 2 * excess * self.k * sigma ** (self.k - 1)


class AlmostIsometry(SigmaMaxPenalty):
    """½σ_max² − ‖W‖_F²/(2ν), ν = min(m, n): >= 0, and 0 only where all singular values are equal, κ = 1.

    Gradient σ u vᵀ − W/ν. Before power iteration has converged, σ and so the value are too low.
    """

    method = "almost_isometry"

    def of_sigma_max(self, sigma: Tensor) -> tuple[Tensor, Tensor]:
        return sigma.square() / 2, sigma

    def penalty(self, W: Tensor, *, group: str) -> Penalty:
        largest = super().penalty(W, group=group)
        nu = min(W.shape[-2:])
        value = largest.value - squared_norm(W) / (2 * nu)
        return Penalty(value=value, dense=torch.sub(largest.gradient, W, alpha=1 / nu))
