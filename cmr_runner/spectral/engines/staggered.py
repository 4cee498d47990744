"""Two rates: the edges of every layer at every step, the moments of a few layers in turn."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cmr_runner.checks import integer
from cmr_runner.spectral.condition import rho_cond
from cmr_runner.spectral.decomposition import DecompositionError, check_finite, converging, working
from cmr_runner.spectral.engines.assembly import edge_slopes
from cmr_runner.spectral.engines.chunks import chunk_bounds, shared_workers
from cmr_runner.spectral.engines.edges import Edges, replaced_edges, sharp_edges
from cmr_runner.spectral.engines.exact import ExactEngine, exact_with_edges
from cmr_runner.spectral.engines.fast import moments_by_products, too_narrow
from cmr_runner.spectral.engines.probes import signs
from cmr_runner.spectral.engines.randomness import generator_for
from cmr_runner.spectral.engines.stochastic import PROBES, moments_by_probes
from cmr_runner.spectral.engines.subspace import KEPT, subspace_edges
from cmr_runner.spectral.penalty import LayerPenalty, PenaltySpec

STEPS = 4
LONGER = 2  # times as many without a warm start, or where edges fail their check
REFRESH = 8
# Of a kept vector's length, at the inner ones: what no kept vector sees must not stay unseen for ever. For a wide W it
# is √(m/n) times this, since it is divided by √n and the vectors have m entries; committed results depend on that.
NOISE = 0.03
SMALL_SIDE = 32  # up to it all of the spectrum costs less than its edges
PRODUCT_WORK = 2 * 512**3  # of m·n·min(m, n): up to it moments come from products, beyond from random probes
CHUNK_ENTRIES = 13 * 256 * 256  # of W: smaller pieces, and Python costs more than what is shared


@dataclass
class Held:
    """What a group of B layers keeps from step to step."""

    evaluations: int
    X: Tensor  # (B, 2·KEPT, r) vectors at the edges of the short side; none where all of the spectrum is taken
    moments: Tensor  # (B, K+1) float64, this and what follows as of each layer's last turn
    rho_moment: Tensor  # (B,) float64
    through: Tensor  # (B, 2) float64, what of α₂∇ρ_moment falls on the edges: σ · through · u vᵀ
    dense: Tensor | None  # (B, m, n) the rest of it; None with α₂ = 0
    square: Tensor  # (B,) float64 ‖dense‖²

    def on(self, device: torch.device) -> Held:
        """The same on the weights' device: it may have been loaded on another one."""
        if self.X.device == device:
            return self
        moved: dict[str, Any] = {key: v.to(device) for key, v in vars(self).items() if isinstance(v, Tensor)}
        return replace(self, **moved)

    def fits(self, W: Tensor, spec: PenaltySpec) -> bool:
        fitting = self.X.shape == kept_shape(W) and self.X.dtype == W.dtype
        return fitting and (self.dense is not None) == (spec.alpha2 != 0) and self.moments.shape[-1] == spec.K + 1


class StaggeredEngine:
    """What acts on the edges fresh at every step, what acts between them once in `refresh` steps and held meanwhile.

    The edges are two directions that move with every step: all of ∇ρ_cond falls on them, and the part of ∇ρ_moment that
    comes through c and d. The rest, W p(Ĝ), is a smooth function of the whole spectrum, which hardly changes from step
    to step and costs all the large products. So it is held, and p's traces with it, which weigh the edges' part; held
    as a whole, ∇ρ_moment would press on two directions that are no edges any more. Layers take turns, so every step
    costs the same.

    - Edges: `steps` products of the last step's vectors with the Gram matrix, see `subspace`; twice as many where the
      edges fail their check; where the low one is not known well enough for ρ_cond, it is sharpened as in `fast`.
    - Moments: by products as in `fast`, by two blocks of `probes` as in `stochastic` where products are too slow.
    - A short side of up to 32: edges from all singular values, by the Gram matrix in float64.
    - Where the edges' decomposition does not converge, `exact` computes the group in this step, and it starts anew.
    """

    name = "staggered"

    def __init__(self, *, seed: int = 0, steps: int = STEPS, refresh: int = REFRESH, probes: int = PROBES) -> None:
        self.steps, self.refresh = integer("steps", steps, least=2), integer("refresh", refresh, least=1)
        self.probes, self.seed = integer("probes", probes, least=1), seed
        self._held: dict[str, Held] = {}

    def name_for(self, shape: tuple[int, int]) -> str:
        if min(shape) <= SMALL_SIDE:
            return "staggered, all"
        return f"staggered, {'products' if by_products(shape) else 'probes'}"

    def penalty(self, W: Tensor, spec: PenaltySpec, *, group: str, step: int) -> LayerPenalty:
        A = working(W)
        try:
            found = self._penalty(A, spec, group, step)
        except DecompositionError:
            self.forget(group)
            found = replace(ExactEngine().penalty(A, spec), fallbacks=len(A))
        return found if W.dtype == A.dtype else found.to(W.dtype)

    def _penalty(self, A: Tensor, spec: PenaltySpec, group: str, step: int) -> LayerPenalty:
        held = self._held.get(group)
        if held is not None and (held := held.on(A.device)).fits(A, spec):
            self._held[group] = held
            due, steps = self._turn(group, held.evaluations, len(A)), self.steps
        else:
            held = self._held[group] = nothing_held(A, spec, generator_for(self.seed, f"{group}, first", step))
            due, steps = (0, len(A)), LONGER * self.steps
        held.evaluations += 1
        start = held.X.clone()
        if start.numel():
            inner = start[:, KEPT - 1 :: KEPT]
            noise = torch.randn(inner.shape, generator=generator_for(self.seed, group, step))
            inner.add_(noise.to(A), alpha=NOISE / A.shape[-1] ** 0.5)

        def piece(i: int, j: int) -> Part:
            """Layers i to j: their edges, and the moments of those whose turn it is."""
            tall = A[i:j] if A.shape[1] >= A.shape[2] else A[i:j].mT
            edges, held.X[i:j], fallbacks = edges_of(tall, start[i:j], steps, spec)
            skipped = 0
            a, b = max(i, due[0]), min(j, due[1])
            if a < b and spec.alpha2:
                own = Edges(*(field[a - i : b - i] for field in edges))
                draws = partial(generator_for, self.seed, f"{group}#{a}", step)
                refused, skipped = self._refresh(A[a:b], own, spec, held, a, draws)
                fallbacks += refused
            return Part(edges.sigma, *factors(A[i:j], edges, spec, held, i), fallbacks, skipped)

        parts = shared_workers().map([partial(piece, i, j) for i, j in chunk_bounds(A, CHUNK_ENTRIES)])
        sigma, left, right, norm = (torch.cat(tensors) for tensors in list(zip(*parts, strict=True))[:4])
        cond = rho_cond(sigma.double(), spec.eps)
        known = torch.where(held.rho_moment.isnan(), 0, held.rho_moment)  # nan: skipped at the first turn
        return LayerPenalty(
            value=spec.alpha1 * cond + (spec.alpha2 * known if spec.alpha2 else 0),
            dense=held.dense,
            left=left,
            right=right,
            norm=norm,
            kept=True,
            skipped=sum(part.skipped for part in parts),
            fallbacks=sum(part.fallbacks for part in parts),
            rho_cond=cond,
            rho_moment=held.rho_moment.clone(),  # an earlier step's result keeps its numbers
            moments=held.moments.clone(),
            sigma_max=sigma[:, 0],
            sigma_min=sigma[:, 1],
        )

    def _turn(self, group: str, evaluations: int, B: int) -> tuple[int, int]:
        """The layers [start, stop) of a group whose moments are computed now: each once in `refresh` evaluations.

        Where in its turn a group begins depends on its name, so that many groups of one layer do not all come at once.
        """
        offset = int.from_bytes(hashlib.blake2b(group.encode(), digest_size=4).digest(), "little")
        turn = (evaluations + offset) % self.refresh
        return B * turn // self.refresh, B * (turn + 1) // self.refresh

    def _refresh(
        self,
        W: Tensor,
        edges: Edges,
        spec: PenaltySpec,
        held: Held,
        first: int,
        draws: Callable[[], torch.Generator],
    ) -> tuple[int, int]:
        """The moment term of W (b, m, n), into what is held from layer `first` on; how many `exact` got and skipped."""
        place = slice(first, first + len(W))
        assert held.dense is not None
        out = held.dense[place]
        refused, skipped = torch.zeros(0), 0
        if by_products((W.shape[1], W.shape[2])):
            tall = W if W.shape[1] >= W.shape[2] else W.mT
            found = moments_by_products(W, torch.bmm(tall.mT, tall), edges, spec, out)
            refused = ~edges.accepted | too_narrow(edges)
        else:
            Z = signs((len(W), 2 * self.probes, min(W.shape[1:])), draws()).to(W)
            found = moments_by_probes(W, Z, edges, spec, out)
        if refused.any():  # then there are no edges to speak of: the whole gradient is held
            exact = exact_with_edges(W[refused], replace(spec, alpha1=0.0))[0]
            out[refused] = exact.gradient
            # One that it skips keeps the moments it had, and has no gradient of them until its next turn.
            missing, skipped = exact.rho_moment.isnan(), exact.skipped
            s, rho = held.moments[place][refused], held.rho_moment[place][refused]
            found.s[refused] = torch.where(missing.unsqueeze(-1), s, exact.moments.to(s))
            found.rho[refused] = torch.where(missing, rho, exact.rho_moment.to(rho))
            found.through[refused] = 0
        held.moments[place], held.rho_moment[place], held.through[place] = found
        held.square[place] = torch.linalg.vector_norm(out, dim=(-2, -1)).double().square()
        return int(refused.sum()), skipped

    def forget(self, group: str) -> None:
        self._held.pop(group, None)

    def state_dict(self) -> dict[str, Any]:
        return {"seed": self.seed, "groups": {group: asdict(held) for group, held in self._held.items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seed = state["seed"]
        self._held = {group: Held(**deepcopy(held)) for group, held in state["groups"].items()}  # written to in place


class Part(NamedTuple):
    """Of a piece of a group: edges, their part of the gradient as factors, the norm of all of it."""

    sigma: Tensor  # (b, 2)
    left: Tensor  # (b, m, 2)
    right: Tensor  # (b, 2, n)
    norm: Tensor  # (b,)
    fallbacks: int
    skipped: int


def by_products(shape: tuple[int, int]) -> bool:
    m, n = shape
    return m * n * min(m, n) <= PRODUCT_WORK


def kept_shape(W: Tensor) -> tuple[int, int, int]:
    B, r = len(W), min(W.shape[1:])
    return (B, 2 * KEPT if r > SMALL_SIDE else 0, r)


def nothing_held(W: Tensor, spec: PenaltySpec, draws: torch.Generator) -> Held:
    B, rows, r = kept_shape(W)
    unknown = W.new_full((B, spec.K + 1), torch.nan, dtype=torch.float64)
    return Held(
        evaluations=0,
        X=torch.randn(B, rows, r, generator=draws).to(W),
        moments=unknown,
        rho_moment=unknown[:, 0].clone(),
        through=W.new_zeros(B, 2, dtype=torch.float64),
        dense=torch.empty_like(W, memory_format=torch.contiguous_format) if spec.alpha2 else None,
        square=W.new_zeros(B, dtype=torch.float64),
    )


def edges_of(W: Tensor, start: Tensor, steps: int, spec: PenaltySpec) -> tuple[Edges, Tensor, int]:
    """Edges of a tall W, checked, sharpened where ρ_cond needs it; what to keep; and how many needed a longer run."""
    if W.shape[-1] <= SMALL_SIDE:
        return small_edges(W), start, 0
    edges, residual, X = subspace_edges(W, start, steps)
    refused = ~edges.accepted
    if refused.any():
        again, residual[refused], X[refused] = subspace_edges(W[refused], X[refused], LONGER * steps)
        edges = replaced_edges(edges, refused, again)
    if spec.alpha1:
        edges = sharp_edges(W, edges, residual, spec.eps, lambda blunt: torch.bmm(W[blunt].mT, W[blunt]))
        X[:, KEPT] = edges.V[:, 1]
    return edges, X, int(refused.sum())


def factors(W: Tensor, edges: Edges, spec: PenaltySpec, held: Held, first: int) -> tuple[Tensor, Tensor, Tensor]:
    """What falls on the edges of W (b, m, n) as left @ right, and the norm of all; W begins at layer `first`."""
    place = slice(first, first + len(W))
    pairs = min(2, *W.shape[1:])  # a matrix of one row or column has but one
    coefficient = edge_slopes(edges.sigma[:, :pairs], held.through[place, :pairs], spec)
    U, V = edges.U[:, :pairs] * coefficient.to(W).unsqueeze(-1), edges.V[:, :pairs]
    left, right = (U.mT, V) if W.shape[1] >= W.shape[2] else (V.mT, U)
    # The pairs are orthonormal, so ‖left @ right‖² is that of the coefficients.
    square = coefficient.square().sum(-1)
    if held.dense is not None:
        across = torch.bmm(right, held.dense[place].mT)  # (b, 2, m): a product of rows, the fast way round
        square = square + held.square[place] + 2 * (left.mT * across).sum((-2, -1)).double()
    return left, right, square.clamp_min(0).sqrt().to(W)


def small_edges(W: Tensor) -> Edges:
    """Edges of a tall W (b, M, r) with a small r, by `eigh` of its Gram matrix in float64.

    For float32 weights as exact as an SVD: what squaring loses, float64 has to spare up to κ = 10⁷.
    """
    check_finite(W)
    A = W.double()
    V = converging(torch.linalg.eigh, torch.bmm(A.mT, A))[1][:, :, [-1, 0]].mT  # (b, 2, r)
    Y = torch.bmm(V, A.mT)
    sigma = torch.linalg.vector_norm(Y, dim=-1)
    U = Y / sigma.clamp_min(torch.finfo(sigma.dtype).tiny).unsqueeze(-1)
    return Edges(sigma.to(W), U.to(W), V.to(W), torch.ones(len(W), dtype=torch.bool, device=W.device))
