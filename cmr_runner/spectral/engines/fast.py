"""The exact gradient but for the tolerance of its edges: matrix products inside, Lanczos at the edges."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from cmr_runner.checks import integer
from cmr_runner.spectral.decomposition import DecompositionError, check_finite, working
from cmr_runner.spectral.engines.assembly import (
    MomentTerm,
    add_edge_terms_,
    all_traces,
    assembled,
    edge_slopes,
    normalisation,
    polynomial_moments,
    slopes,
)
from cmr_runner.spectral.engines.chunks import in_pieces, replaced
from cmr_runner.spectral.engines.edges import Edges, gram_edges
from cmr_runner.spectral.engines.exact import exact_with_edges, left_to_exact
from cmr_runner.spectral.engines.host import Array, Mask, array, tensor
from cmr_runner.spectral.engines.polynomials import gradient_product, interior, normalised_gram_
from cmr_runner.spectral.engines.warm_start import WarmStart
from cmr_runner.spectral.penalty import LayerPenalty, PenaltySpec

STEPS = 16


class FastEngine:
    """Moments from powers of Ĝ, edges from `steps` Lanczos steps that start at the last step's edge vectors.

    A layer whose edges fail their residual check is computed by the exact engine, as is the first step of a group.
    """

    name = "fast"

    def __init__(self, *, seed: int = 0, steps: int = STEPS) -> None:
        self.steps = integer("steps", steps, least=2)
        self.warm = WarmStart(seed)

    def name_for(self, shape: tuple[int, int]) -> str:
        return self.name

    def penalty(self, W: Tensor, spec: PenaltySpec, *, group: str, step: int) -> LayerPenalty:
        A = working(W)
        check_finite(A)
        start = self.warm.start(group, A, step)
        penalty, V = in_pieces(
            A, lambda i, j, out: _piece(A[i:j], spec, None if start is None else start[i:j], self.steps, out)
        )
        self.warm.keep(group, V)
        return penalty.to(W.dtype)

    def forget(self, group: str) -> None:
        self.warm.forget(group)

    def state_dict(self) -> dict[str, Any]:
        return self.warm.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.warm.load_state_dict(state)


def _piece(W: Tensor, spec: PenaltySpec, start: Tensor | None, steps: int, out: Tensor) -> tuple[LayerPenalty, Tensor]:
    """The penalty of W (b, m, n), and its edge vectors on the short side (b, 2, r) to start from next time."""
    if start is None or min(W.shape[1:]) <= steps:  # then the Krylov space would be everything
        return exact_with_edges(W, spec)
    tall = W if W.shape[1] >= W.shape[2] else W.mT
    G = torch.bmm(tall.mT, tall)
    try:
        edges = gram_edges(tall, G, start, steps, spec.eps, sharp=spec.alpha1 != 0)
    except DecompositionError:
        return left_to_exact(W, spec)
    penalty = penalty_from_edges(W, G, edges, spec, out)
    refused = ~edges.accepted | tensor(too_narrow(array(edges.sigma), torch.finfo(W.dtype).eps), W)
    if not refused.any():
        return penalty, edges.V
    exact, V = left_to_exact(W[refused], spec)
    return replaced(penalty, refused, exact), edges.V.index_put((refused,), V)


def too_narrow(sigma: Array, eps: float) -> Mask:
    """(B,): a spectrum so narrow that Ĝ = (G − cI)/d, by subtraction, would keep no more than half of eps's digits."""
    lam_max, lam_min = np.square(sigma).T
    return lam_max - lam_min <= eps**0.5 * lam_max


def penalty_from_edges(
    W: Tensor, G: Tensor, edges: Edges, spec: PenaltySpec, out: Tensor | None = None
) -> LayerPenalty:
    """The penalty of W (B, m, n) given its edges, all else by products; G, the short side's Gram matrix, is used up.

    `out`, of W's shape, holds the gradient then.
    """
    out = torch.empty_like(W) if out is None else out
    sigma = array(edges.sigma)
    found = moments_by_products(W, G, sigma, spec, out)
    tall_out = out if W.shape[1] >= W.shape[2] else out.mT
    add_edge_terms_(tall_out, edges, edge_slopes(sigma, found.through, spec))
    return assembled(edges, sigma, found, out, spec)


def moments_by_products(W: Tensor, G: Tensor, sigma: Array, spec: PenaltySpec, out: Tensor) -> MomentTerm:
    """The moment term of W (B, m, n) with edges σ (B, 2), its gradient but for the edges in `out`; G is used up."""
    tall, tall_out = (W, out) if W.shape[1] >= W.shape[2] else (W.mT, out.mT)
    norm = normalisation(sigma, (W.shape[1], W.shape[2]), spec)
    powers = interior(tall, normalised_gram_(G, tensor(norm.c, G), tensor(norm.d, G)), norm.c, norm.d, spec.K)
    traces = all_traces(powers.traces, norm)
    s, rho = polynomial_moments(traces, norm, spec)
    slope = slopes(traces, norm, spec, s)
    gradient_product(tall, powers, slope.h, out=tall_out)
    return MomentTerm(s, rho, slope.through)
