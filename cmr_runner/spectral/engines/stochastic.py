"""For wide layers: moments from random probes, edges from Lanczos on W. Nothing cubic in the width."""

from __future__ import annotations

from typing import Any

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
    slopes,
)
from cmr_runner.spectral.engines.chunks import in_pieces
from cmr_runner.spectral.engines.edges import Edges, krylov_edges, replaced_edges
from cmr_runner.spectral.engines.exact import exact_with_edges, left_to_exact
from cmr_runner.spectral.engines.host import Array, array
from cmr_runner.spectral.engines.probes import gradient_estimate, probed, signs
from cmr_runner.spectral.engines.randomness import generator_for
from cmr_runner.spectral.engines.warm_start import WarmStart
from cmr_runner.spectral.penalty import LayerPenalty, PenaltySpec

PROBES = 16
STEPS = 8
CHUNK_ENTRIES = 1 << 20  # of W: thin products are over so soon that Python around them is what costs
LONGER = 4  # times as many Lanczos steps without a warm start, or where its edges fail their check


class StochasticEngine:
    """s_k and its gradient unbiased given the edges: two independent blocks of `probes`, seeded by (seed, step)."""

    name = "stochastic"

    def __init__(self, *, seed: int = 0, probes: int = PROBES, steps: int = STEPS) -> None:
        self.probes, self.steps = integer("probes", probes, least=1), integer("steps", steps, least=2)
        self.warm = WarmStart(seed)

    def name_for(self, shape: tuple[int, int]) -> str:
        return self.name

    def penalty(self, W: Tensor, spec: PenaltySpec, *, group: str, step: int) -> LayerPenalty:
        A = working(W)
        check_finite(A)
        warm = self.warm.start(group, A, step)
        start, steps = (self.warm.noise(group, A, step), LONGER * self.steps) if warm is None else (warm, self.steps)
        penalty, V = in_pieces(
            A,
            lambda i, j, out: self._piece(
                A[i:j], spec, start[i:j], steps, generator_for(self.warm.seed, f"{group}#{i}", step), out
            ),
            CHUNK_ENTRIES,
        )
        self.warm.keep(group, V)
        return penalty.to(W.dtype)

    def forget(self, group: str) -> None:
        self.warm.forget(group)

    def state_dict(self) -> dict[str, Any]:
        return self.warm.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.warm.load_state_dict(state)

    def _piece(
        self, W: Tensor, spec: PenaltySpec, start: Tensor, steps: int, generator: torch.Generator, out: Tensor
    ) -> tuple[LayerPenalty, Tensor]:
        r = min(W.shape[1:])
        if r <= 2 * self.probes:  # then all of the spectrum costs less than a sample of it
            return exact_with_edges(W, spec)
        tall = W if W.shape[1] >= W.shape[2] else W.mT
        try:
            edges, longer = checked_edges(tall, start, steps)
        except DecompositionError:
            return left_to_exact(W, spec)
        Z = signs((len(W), 2 * self.probes, r), generator).to(W)
        penalty = sampled_penalty(W, Z, edges, spec, out)
        penalty.fallbacks = longer
        return penalty, edges.V


def checked_edges(W: Tensor, start: Tensor, steps: int) -> tuple[Edges, int]:
    """Edges of a tall W by Lanczos; those refused again with more steps from what was found, and their number.

    No decomposition as a last resort: it would be cubic. The longer run's edges are taken as they come.
    """

    def run(A: Tensor, start: Tensor, steps: int) -> Edges:
        return krylov_edges(A, lambda X: torch.bmm(torch.bmm(X, A.mT), A), start, steps)[0]

    edges = run(W, start, steps)
    refused = ~edges.accepted
    if refused.any():
        again = run(W[refused], edges.V[refused].sum(1) + start[refused], LONGER * steps)
        edges = replaced_edges(edges, refused, again)
    return edges, int(refused.sum())


def sampled_penalty(W: Tensor, Z: Tensor, edges: Edges, spec: PenaltySpec, out: Tensor | None = None) -> LayerPenalty:
    """The penalty of W (B, m, n) given its edges, moments by the two blocks of probes in Z (B, 2p, r).

    s_k² is estimated by the product of the blocks' s_k, and its gradient by each block's s_k times the other's ∇s_k:
    unbiased, where the square of one estimate would carry its variance. So ρ_moment can come out below zero.
    `out`, of W's shape, holds the gradient then.
    """
    out = torch.empty_like(W) if out is None else out
    sigma = array(edges.sigma)
    found = moments_by_probes(W, Z, sigma, spec, out)
    tall_out = out if W.shape[1] >= W.shape[2] else out.mT
    add_edge_terms_(tall_out, edges, edge_slopes(sigma, found.through, spec))
    return assembled(edges, sigma, found, out, spec)


def moments_by_probes(W: Tensor, Z: Tensor, sigma: Array, spec: PenaltySpec, out: Tensor) -> MomentTerm:
    """The moment term of W (B, m, n) with edges σ (B, 2) by the probes in Z (B, 2p, r), its gradient but for the edges
    in `out`."""
    tall, tall_out = (W, out) if W.shape[1] >= W.shape[2] else (W.mT, out.mT)
    norm = normalisation(sigma, (W.shape[1], W.shape[2]), spec)
    probes = probed(tall, Z, norm.c, norm.d, spec.K)
    twice = norm.repeated(2)  # the blocks of a matrix side by side, as a batch of 2B
    traces = all_traces(probes.traces.reshape(-1, spec.K + 1), twice)
    s = (traces / norm.n).reshape(-1, 2, spec.K + 1)
    slope = slopes(traces, twice, spec, s[:, ::-1].reshape(-1, spec.K + 1))
    gradient_estimate(tall, probes, slope.h.reshape(s.shape), tall_out)
    rho = (array(spec.w) * s[:, :, 3:].prod(1)).sum(-1)
    return MomentTerm(s.mean(1), rho, slope.through.reshape(-1, 2, 2).mean(1))
