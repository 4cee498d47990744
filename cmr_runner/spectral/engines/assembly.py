"""From edges and traces to the penalty: the small algebra that engines without eigenvalues share.

All of it is float64 on the host, arrays of one row per matrix; σ (B, 2) is the greatest and the least.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from cmr_runner.spectral.engines.edges import Edges
from cmr_runner.spectral.engines.host import Array, Mask, Places, array, tensor
from cmr_runner.spectral.engines.polynomials import (
    affine_coefficients,
    derivative_coefficients,
    scaled_derivative_coefficients,
)
from cmr_runner.spectral.moments import chebyshev
from cmr_runner.spectral.penalty import LayerPenalty, PenaltySpec

TINY = float(np.finfo(np.float64).tiny)


class Normalisation(NamedTuple):
    """c and d of Ĝ = (G − cI)/d, with what is not in the short side: `zeros` fixed eigenvalues at −c/d."""

    c: Array  # (B,)
    d: Array  # (B,)
    at_floor: Mask  # (B,): d = ε does not move with W
    zeros: int
    n: int

    def of(self, places: Places) -> Normalisation:
        """That of these matrices."""
        return self._replace(c=self.c[places], d=self.d[places], at_floor=self.at_floor[places])

    def repeated(self, times: int) -> Normalisation:
        """Each matrix so many times in a row."""
        c, d, at_floor = self.c.repeat(times), self.d.repeat(times), self.at_floor.repeat(times)
        return Normalisation(c, d, at_floor, self.zeros, self.n)


def normalisation(sigma: Array, shape: tuple[int, int], spec: PenaltySpec) -> Normalisation:
    """As `moments.gram_spectrum`, from the two edges alone; shape is (m, n) of W before any transposition."""
    r = min(shape)
    n = shape[1] if spec.gram == "columns" else r
    lam_max, lam_min = np.square(sigma).T
    if n > r:
        lam_min = np.zeros_like(lam_max)
    half_width = (lam_max - lam_min) / 2
    return Normalisation((lam_max + lam_min) / 2, np.maximum(half_width, spec.eps), half_width <= spec.eps, n - r, n)


def all_traces(traces: Array, norm: Normalisation) -> Array:
    """Traces over the short side (B, K+1), with the fixed zero eigenvalues of the `columns` reading added."""
    if not norm.zeros:
        return traces
    T, _ = chebyshev(torch.from_numpy(-norm.c / norm.d), traces.shape[-1] - 1)  # (K+1, B)
    return traces + norm.zeros * T.mT.numpy()


def traces_at(new: Normalisation, old: Normalisation, traces: Array) -> Array:
    """Traces (B, K+1) of all n eigenvalues where the edges moved from those of `old` to those of `new`.

    The edges are at x = ±1 in both. What is between them keeps its λ, so its x becomes (d/d')x + (c − c')/d'. In a wide
    layer read by columns the low edge is 0 and σ_min² is between: one eigenvalue of n, whose own move is left out.
    """
    k = np.arange(traces.shape[-1])
    at_edges = 1 + max(1, new.zeros) * (-1.0) ** k
    moved = affine_coefficients(old.d / new.d, (old.c - new.c) / new.d, k[-1])
    return (moved @ (traces - at_edges)[..., None])[..., 0] + at_edges


class Slopes(NamedTuple):
    """α₂∇ρ_moment = W p(Ĝ) + Σ_edges σ · through · u vᵀ with p = Σ_k h_k T_k'."""

    h: Array  # (B, K+1)
    through: Array  # (B, 2): what reaches the edges through c and d


def slopes(traces: Array, norm: Normalisation, spec: PenaltySpec, s: Array) -> Slopes:
    """h_k = α₂ (2/(n d)) 2 w_k s_k; through c and d −½ (tr p ± tr Ĝp), the second trace only if d > ε.

    `traces` are of all n eigenvalues; `s` holds the moments that weigh the slopes.
    """
    h = np.zeros_like(traces)
    h[:, 3:] = spec.alpha2 * (4 / (norm.n * norm.d))[:, None] * array(spec.w) * s[:, 3:]
    tr_p = (h @ derivative_coefficients(spec.K) * traces).sum(-1)
    tr_xp = (h @ scaled_derivative_coefficients(spec.K) * traces).sum(-1)
    tr_xp[norm.at_floor] = 0
    return Slopes(h, -0.5 * np.stack([tr_p + tr_xp, np.zeros_like(tr_p) if norm.zeros else tr_p - tr_xp], -1))


class MomentTerm(NamedTuple):
    """What is known of α₂ρ_moment beside the part of its gradient that is not at the edges."""

    s: Array  # (B, K+1) moments
    rho: Array  # (B,) ρ_moment
    through: Array  # (B, 2) see Slopes


def edge_slopes(sigma: Array, through: Array, spec: PenaltySpec) -> Array:
    """What multiplies u vᵀ at the edges: α₁ ∂ρ_cond/∂σ, as in `condition.rho_cond_slopes`, + σ · through.

    A matrix of one row or column has one singular value, σ (B, 1), and both slopes of ρ_cond act on it.
    """
    top, bottom = sigma[:, 0], sigma[:, -1]
    up = np.where(top > TINY, 1 / np.maximum(top, TINY), 0)
    slopes = sigma * through
    if sigma.shape[1] == 1:  # 1/σ − σ/(σ² + ε) without its cancellation
        slopes[:, 0] += spec.alpha1 * up * (spec.eps / (np.square(bottom) + spec.eps))
    else:
        slopes[:, 0] += spec.alpha1 * up
        slopes[:, 1] -= spec.alpha1 * bottom / (np.square(bottom) + spec.eps)
    return slopes


def add_edge_terms_(gradient: Tensor, edges: Edges, coefficient: Array) -> Tensor:
    """gradient (B, M, r) += Σ coefficient_i u_i v_iᵀ."""
    return gradient.baddbmm_((edges.U * tensor(coefficient, edges.U).unsqueeze(-1)).mT, edges.V)


def penalty_values(sigma: Array, found: MomentTerm, spec: PenaltySpec, like: Tensor) -> dict[str, Any]:
    """The fields of a LayerPenalty that are numbers of each layer, float64 where `like` is.

    ρ_moment need not be made of s, where s is an estimate; nan is one that could not be computed.
    """
    cond = np.log(np.maximum(sigma[:, 0], TINY)) - 0.5 * np.log(np.square(sigma[:, -1]) + spec.eps)  # ρ_cond
    value = spec.alpha1 * cond
    if spec.alpha2:
        value = value + spec.alpha2 * np.where(np.isnan(found.rho), 0, found.rho)
    named = {"value": value, "rho_cond": cond, "rho_moment": found.rho, "moments": found.s}
    return {name: torch.from_numpy(values).to(like.device) for name, values in named.items()}


def assembled(edges: Edges, sigma: Array, found: MomentTerm, gradient: Tensor, spec: PenaltySpec) -> LayerPenalty:
    """The parts as a LayerPenalty."""
    return LayerPenalty(
        dense=gradient,
        sigma_max=edges.sigma[:, 0],
        sigma_min=edges.sigma[:, 1],
        **penalty_values(sigma, found, spec, gradient),
    )


def polynomial_moments(traces: Array, norm: Normalisation, spec: PenaltySpec) -> tuple[Array, Array]:
    """s (B, K+1) and ρ_moment (B,) from the traces of all n eigenvalues."""
    s = traces / norm.n
    return s, (array(spec.w) * np.square(s[:, 3:])).sum(-1)
