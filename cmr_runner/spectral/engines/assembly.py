"""From edges and traces to the penalty: the small algebra that engines without eigenvalues share, in float64."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from cmr_runner.spectral.condition import rho_cond, rho_cond_slopes
from cmr_runner.spectral.engines.edges import Edges
from cmr_runner.spectral.engines.polynomials import derivative_coefficients, scaled_derivative_coefficients
from cmr_runner.spectral.moments import chebyshev, rho_moment
from cmr_runner.spectral.penalty import LayerPenalty, PenaltySpec


class Normalisation(NamedTuple):
    """c and d of Ĝ = (G − cI)/d, with what is not in the short side: `zeros` fixed eigenvalues at −c/d."""

    c: Tensor  # (B,)
    d: Tensor  # (B,)
    at_floor: Tensor  # (B,) bool: d = ε does not move with W
    zeros: int
    n: int

    def repeated(self, times: int) -> Normalisation:
        """Each matrix so many times in a row."""
        c, d, at_floor = (field.repeat_interleave(times) for field in self[:3])
        return Normalisation(c, d, at_floor, self.zeros, self.n)


def normalisation(edges: Edges, shape: tuple[int, int], spec: PenaltySpec) -> Normalisation:
    """As `moments.gram_spectrum`, from the two edges alone; shape is (m, n) of W before any transposition."""
    r = min(shape)
    n = shape[1] if spec.gram == "columns" else r
    lam_max, lam_min = edges.sigma.double().square().unbind(-1)
    if n > r:
        lam_min = torch.zeros_like(lam_max)
    half_width = (lam_max - lam_min) / 2
    return Normalisation((lam_max + lam_min) / 2, half_width.clamp_min(spec.eps), half_width <= spec.eps, n - r, n)


def all_traces(traces: Tensor, norm: Normalisation) -> Tensor:
    """Traces over the short side (B, K+1), with the fixed zero eigenvalues of the `columns` reading added."""
    if not norm.zeros:
        return traces
    T, _ = chebyshev(-norm.c / norm.d, traces.shape[-1] - 1)  # (K+1, B)
    return traces + norm.zeros * T.mT


class Slopes(NamedTuple):
    """α₂∇ρ_moment = W p(Ĝ) + Σ_edges σ · through · u vᵀ with p = Σ_k h_k T_k'."""

    h: Tensor  # (B, K+1)
    through: Tensor  # (B, 2): what reaches the edges through c and d


def slopes(traces: Tensor, norm: Normalisation, spec: PenaltySpec, s: Tensor) -> Slopes:
    """h_k = α₂ (2/(n d)) 2 w_k s_k; through c and d −½ (tr p ± tr Ĝp), the second trace only if d > ε.

    `traces` are of all n eigenvalues; `s` holds the moments that weigh the slopes.
    """
    K = spec.K
    h = torch.zeros_like(traces)
    h[:, 3:] = spec.alpha2 * (4 / (norm.n * norm.d)).unsqueeze(-1) * spec.w.to(s) * s[:, 3:]
    tr_p = (h @ derivative_coefficients(K).to(h) * traces).sum(-1)
    tr_xp = (h @ scaled_derivative_coefficients(K).to(h) * traces).sum(-1)
    tr_xp = torch.where(norm.at_floor, 0, tr_xp)
    return Slopes(h, -0.5 * torch.stack([tr_p + tr_xp, torch.zeros_like(tr_p) if norm.zeros else tr_p - tr_xp], -1))


class MomentTerm(NamedTuple):
    """What is known of α₂ρ_moment beside the part of its gradient that is not at the edges."""

    s: Tensor  # (B, K+1) moments
    rho: Tensor  # (B,) ρ_moment
    through: Tensor  # (B, 2) see Slopes


def edge_slopes(sigma: Tensor, through: Tensor, spec: PenaltySpec) -> Tensor:
    """What multiplies u vᵀ at the edges σ (B, 2): α₁ ∂ρ_cond/∂σ + σ · through, float64."""
    sigma = sigma.double()
    return spec.alpha1 * rho_cond_slopes(sigma, spec.eps) + sigma * through


def add_edge_terms_(gradient: Tensor, edges: Edges, coefficient: Tensor) -> Tensor:
    """gradient (B, M, r) += Σ coefficient_i u_i v_iᵀ."""
    return gradient.baddbmm_((edges.U * coefficient.to(edges.U).unsqueeze(-1)).mT, edges.V)


def assembled(edges: Edges, s: Tensor, moment: Tensor, gradient: Tensor, spec: PenaltySpec) -> LayerPenalty:
    """The parts as a LayerPenalty; `moment` is ρ_moment, which need not be made of `s` where s is an estimate."""
    cond = rho_cond(edges.sigma.double(), spec.eps)
    return LayerPenalty(
        value=spec.alpha1 * cond + spec.alpha2 * moment,
        dense=gradient,
        rho_cond=cond,
        rho_moment=moment,
        moments=s,
        sigma_max=edges.sigma[:, 0],
        sigma_min=edges.sigma[:, 1],
    )


def polynomial_moments(traces: Tensor, norm: Normalisation, spec: PenaltySpec) -> tuple[Tensor, Tensor]:
    """s (B, K+1) and ρ_moment (B,) from the traces of all n eigenvalues."""
    s = traces / norm.n
    return s, rho_moment(s, spec.w)
