"""The reference engine: every singular pair of every matrix, every step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from cmr_runner.spectral.decomposition import DecompositionError, check_finite, converging, svd, working
from cmr_runner.spectral.engines.chunks import in_pieces, joined
from cmr_runner.spectral.penalty import LayerPenalty, PenaltySpec, exact_penalty, penalty_from_svd

CHUNK_ENTRIES = 128 * 128  # a decomposition costs far more than Python around it, so larger layers go one by one

GRAM_SIDE = 32  # below it an SVD is as fast


class ExactEngine:
    """Closed-form penalty from all singular pairs, layers divided over the workers. Carries nothing between steps."""

    name = "exact"

    def __init__(self, *, seed: int = 0) -> None:
        """Nothing is drawn at random."""

    def name_for(self, shape: tuple[int, int]) -> str:
        return self.name

    def penalty(self, W: Tensor, spec: PenaltySpec, *, group: str = "", step: int = 0) -> LayerPenalty:
        A = working(W)
        check_finite(A)
        return in_pieces(A, lambda i, j, _: exact_with_edges(A[i:j], spec), CHUNK_ENTRIES)[0].to(W.dtype)

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


def exact_with_edges(W: Tensor, spec: PenaltySpec) -> tuple[LayerPenalty, Tensor]:
    """The penalty of W (B, m, n) and its edge vectors on the short side, (B, 2, r): v_max, v_min as rows."""
    try:
        U, sigma, Vh = gram_svd(W) or svd(W)
    except DecompositionError:
        return one_by_one(W, spec), W.new_zeros(len(W), 2, min(W.shape[1:]))
    short = Vh if W.shape[1] >= W.shape[2] else U.mT  # (B, r, r)
    return penalty_from_svd(U, sigma, Vh, spec), short[:, [0, -1]]


def left_to_exact(W: Tensor, spec: PenaltySpec) -> tuple[LayerPenalty, Tensor]:
    """`exact_with_edges` of matrices that another engine could not compute its own way, counted as its fallbacks."""
    penalty, V = exact_with_edges(W, spec)
    return replace(penalty, fallbacks=len(W)), V


def gram_svd(W: Tensor) -> tuple[Tensor, Tensor, Tensor] | None:
    """The thin SVD of W (B, m, n) by `eigh` of its short side's Gram matrix, half the time; None where κ forbids it.

    G = VΛVᵀ, σ_i = ‖Wv_i‖, u_i = Wv_i/σ_i. An eigenvector is off by about eps·κ², and σ_i, taken from W, by its
    square: so κ² must stay under 1e-4/eps, which is κ = 29. For float32 alone: float64 callers want full precision.
    Nor with all σ nearly equal: Ĝ then shows the rounding of G, which is larger than that of an SVD.
    """
    if W.dtype != torch.float32 or min(W.shape[1:]) < GRAM_SIDE:
        return None
    tall = W if W.shape[1] >= W.shape[2] else W.mT
    lam, V = converging(torch.linalg.eigh, torch.bmm(tall.mT, tall))
    resolved = 1e4 * torch.finfo(W.dtype).eps * lam[:, -1]
    if not ((lam[:, 0] > resolved) & (lam[:, -1] - lam[:, 0] > resolved)).all():
        return None
    V = V.to(W.dtype)
    U = torch.bmm(tall, V)
    sigma = torch.linalg.vector_norm(U, dim=-2)  # (B, r), in the order of λ up to rounding
    sigma, order = sigma.sort(dim=-1, descending=True)
    U = U.gather(-1, order.unsqueeze(1).expand_as(U)) / sigma.unsqueeze(1)
    Vh = V.gather(-1, order.unsqueeze(1).expand_as(V)).mT
    return (U, sigma, Vh) if tall is W else (Vh.mT, sigma, U.mT)


def one_by_one(W: Tensor, spec: PenaltySpec) -> LayerPenalty:
    """A batch again, matrix by matrix: one that does not converge is left out of this step and counted."""
    return joined([_one(W[i : i + 1], spec) for i in range(len(W))])


def _one(W: Tensor, spec: PenaltySpec) -> LayerPenalty:
    try:
        return exact_penalty(W, spec)
    except DecompositionError:
        zero, nan = W.new_zeros(1), W.new_full((1,), torch.nan)
        return LayerPenalty(
            value=zero,
            dense=torch.zeros_like(W),
            rho_cond=nan,
            rho_moment=nan,
            moments=nan.expand(1, spec.K + 1),
            sigma_max=nan,
            sigma_min=nan,
            skipped=1,
        )
