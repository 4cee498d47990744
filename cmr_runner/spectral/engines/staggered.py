"""Three rates: layers by turns, their edges at every evaluation, their moments at one in several."""

from __future__ import annotations

import hashlib
from copy import deepcopy
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cmr_runner.checks import integer
from cmr_runner.spectral.decomposition import DecompositionError, check_finite, converging, working
from cmr_runner.spectral.engines.assembly import (
    MomentTerm,
    edge_slopes,
    normalisation,
    penalty_values,
    polynomial_moments,
    slopes,
    traces_at,
)
from cmr_runner.spectral.engines.chunks import chunk_bounds, shared_workers
from cmr_runner.spectral.engines.edges import ROUNDING, Edges, is_blunt, sharp_edges
from cmr_runner.spectral.engines.exact import ExactEngine, exact_with_edges
from cmr_runner.spectral.engines.fast import moments_by_products, too_narrow
from cmr_runner.spectral.engines.host import Array, Mask, Places, array, tensor
from cmr_runner.spectral.engines.probes import signs
from cmr_runner.spectral.engines.randomness import generator_for
from cmr_runner.spectral.engines.stochastic import PROBES, moments_by_probes
from cmr_runner.spectral.engines.subspace import EDGES, HIGH, LOW, ROWS, Ritz, bulk, first_rows, orthonormal, ritz_pairs
from cmr_runner.spectral.penalty import LayerPenalty, PenaltySpec

STEPS = 6
AT_ONCE = 1  # the filter's degree for weights that have not moved; each step since adds one
REFRESH = 4
TURNS = 8
# Of a kept vector's length, on the inner ones of the layers whose turn it is: what no kept vector sees must not stay
# unseen for ever.
NOISE = 0.03
ACCEPTED_RESIDUAL = 0.2  # of the spread: the Rayleigh gap goes with its square, and kept neighbours are no error
SMALL_SIDE = 2 * ROWS  # up to it the kept and the filtered rows would be all of the space
PRODUCT_WORK = 2 * 512**3  # of m·n·min(m, n): up to it moments come from products, beyond from random probes
TURN_ENTRIES = 2 * 256 * 256  # of W whose turn it is
MOST_MOMENT = 1.1  # |s_k| <= 1, and an estimate of one by probes lies a little beyond at most
CHUNK_ENTRIES = 7 * 256 * 256  # of W: a piece is read a dozen times, from the core's own cache if it fits there


@dataclass
class Held:
    """What the layers of a group, B of them, keep from step to step.

    The small numbers are on the host, in float64: there are a few of them per layer, and what a step does with them
    would take longer to launch one by one, on any device, than to compute.
    """

    evaluations: Tensor  # (B,) so far
    step: Tensor  # (B,) of the last one
    X: Tensor  # (B, ROWS, r) vectors at the edges of the short side; none where all of the spectrum is taken
    lam: Tensor  # (B, ROWS) their Ritz values
    sigma: Tensor  # (B, 2) the edges that the next three are at; zeros where these cannot follow the edges
    moments: Tensor  # (B, K+1)
    rho_moment: Tensor  # (B,)
    through: Tensor  # (B, 2) what of α₂∇ρ_moment falls on the edges: σ · through · u vᵀ
    dense: Tensor | None  # (B, m, n) the rest of it, as of each layer's last moments; None with α₂ = 0
    square: Tensor  # (B,) ‖dense‖²

    def on_host(self) -> Held:
        """The same with what is small on the host, wherever it was loaded."""
        kept = vars(self).items()
        return replace(self, **{key: value.cpu() for key, value in kept if key not in ("X", "dense")})

    def on(self, device: torch.device) -> Held:
        """The same with what is large on the weights' device: it may have been loaded on another one."""
        if self.X.device == device:
            return self
        return replace(self, X=self.X.to(device), dense=None if self.dense is None else self.dense.to(device))

    def fits(self, W: Tensor, count: int, spec: PenaltySpec) -> bool:
        """Whether it is of so many layers such as W."""
        fitting = self.X.shape == kept_shape(W, count) and self.X.dtype == W.dtype
        return fitting and (self.dense is not None) == (spec.alpha2 != 0) and self.moments.shape[-1] == spec.K + 1

    def part(self, first: int, stop: int) -> Held:
        """Of the layers [first, stop), as views: what is written there is kept."""
        views: dict[str, Any] = {key: kept if kept is None else kept[first:stop] for key, kept in vars(self).items()}
        return replace(self, **views)


class StaggeredEngine:
    """What acts on the edges fresh at every evaluation, what acts between them once in `refresh` of them and held.

    The edges are two directions that move with every step: all of ∇ρ_cond falls on them, and the part of ∇ρ_moment that
    comes through c and d. The rest, W p(Ĝ), is a smooth function of the whole spectrum, which hardly changes from step
    to step and costs all the large products. So it is held. Held as a whole, ∇ρ_moment would press on two directions
    that are no edges any more, by moments that they no longer give: the moments move most by the edges, so between two
    turns they follow them (`traces_at`). The layers' turns are spread over the evaluations, so that each costs the
    same.

    - Turns: whoever calls it may take every so many-th layer at a step, at most `turns`, weighed as often.
    - Edges: a Chebyshev filter on the last evaluation's vectors, see `subspace`, of a degree that grows with the steps
      since, up to `steps`; once more where the edges fail their check; where the low one is not known well enough for
      ρ_cond, it is sharpened as in `fast`.
    - Moments: by products as in `fast`, by two blocks of `probes` as in `stochastic` where products are too slow. Out
      of turn where they cannot follow the edges, or where `fresh` asks for them. Where the spectrum is too narrow for
      them `exact` computes them, and by probes they do not act.
    - A short side of up to 40: edges from all singular values, by the Gram matrix in float64.
    - Where the edges' decomposition does not converge, `exact` computes the group in this step, and it starts anew.
    """

    name = "staggered"

    def __init__(
        self,
        *,
        seed: int = 0,
        steps: int = STEPS,
        refresh: int = REFRESH,
        probes: int = PROBES,
        turns: int = TURNS,
    ) -> None:
        self.steps, self.refresh = integer("steps", steps, least=1), integer("refresh", refresh, least=1)
        self.probes, self.turns, self.seed = integer("probes", probes, least=1), integer("turns", turns, least=1), seed
        self._held: dict[str, Held] = {}

    def name_for(self, shape: tuple[int, int]) -> str:
        if min(shape) <= SMALL_SIDE:
            return "staggered, all"
        return f"staggered, {'products' if by_products(shape) else 'probes'}"

    def penalty(
        self,
        W: Tensor,
        spec: PenaltySpec,
        *,
        group: str,
        step: int,
        place: tuple[int, int] | None = None,
        fresh: bool = False,
    ) -> LayerPenalty:
        """place: of the first of these layers in its group, and how many the group has; None for all of them.

        fresh: compute the moments of all of them, whose spectra may have moved as a whole.
        """
        A = working(W)
        try:
            found = self._penalty(A, spec, group, step, *(place or (0, len(A))), fresh=fresh)
        except DecompositionError:
            self.forget(group)
            found = replace(ExactEngine().penalty(A, spec), fallbacks=len(A))
        return found if W.dtype == A.dtype else found.to(W.dtype)

    def _penalty(
        self, A: Tensor, spec: PenaltySpec, group: str, step: int, first: int, count: int, *, fresh: bool
    ) -> LayerPenalty:
        of_group = self._held.get(group)
        if of_group is None or not (of_group := of_group.on(A.device)).fits(A, count, spec):
            of_group = nothing_held(A, count, spec)
        self._held[group] = of_group
        held = of_group.part(first, first + len(A))
        if held.evaluations.all():
            due = np.arange(len(A)) if fresh else self._due(group, held, first)
            degree = min(self.steps, AT_ONCE + max(1, step - int(held.step.min())))
            if len(due) and held.X.numel():
                self._disturb_(held, due, generator_for(self.seed, f"{group}#{first}", step))
        else:
            due, degree = np.arange(len(A)), self.steps
            if held.X.numel():
                draws = generator_for(self.seed, f"{group}#{first}, first", step)
                X, lam = first_rows(upright(A), torch.randn(len(A), held.X.shape[-1], generator=draws).to(A))
                held.X.copy_(X)
                held.lam.copy_(lam)
        held.evaluations += 1
        held.step.fill_(step)
        edges, sigma, fallbacks = edges_of(upright(A), held, degree, spec)
        skipped = 0
        if spec.alpha2:
            due = np.union1d(due, follow_edges_(held, sigma, (A.shape[1], A.shape[2]), spec))
        if len(due) and spec.alpha2:
            accepted = edges.accepted.cpu().numpy()
            most = max(1, TURN_ENTRIES // A[0].numel())
            pieces = [due[i : i + most] for i in range(0, len(due), most)]
            draws_of = f"{group}#{first}+"
            refreshed = shared_workers().map(
                [partial(self._refresh, A, sigma, accepted, spec, held, i, f"{draws_of}{i[0]}", step) for i in pieces]
            )
            fallbacks += sum(refused for refused, _ in refreshed)
            skipped = sum(missing for _, missing in refreshed)
        left, right, norm = factors(A, edges, sigma, spec, held)
        # Copies: an earlier step's result keeps its numbers.
        known = MomentTerm(*(field.numpy().copy() for field in (held.moments, held.rho_moment, held.through)))
        return LayerPenalty(
            dense=held.dense,
            left=left,
            right=right,
            norm=norm,
            kept=True,
            skipped=skipped,
            fallbacks=fallbacks,
            sigma_max=edges.sigma[:, 0],
            sigma_min=edges.sigma[:, 1],
            **penalty_values(sigma, known, spec, A),
        )

    def _due(self, group: str, held: Held, first: int) -> Places:
        """Which of these layers have their moments computed now: each once in `refresh` evaluations.

        They begin at different evaluations by their place in the group, and groups by their name, so that not all
        come at once.
        """
        offset = int.from_bytes(hashlib.blake2b(group.encode(), digest_size=4).digest(), "little") + first
        count = held.evaluations.numpy() + np.arange(offset, offset + len(held.evaluations))
        return np.flatnonzero(count % self.refresh == 0)

    @staticmethod
    def _disturb_(held: Held, places: Places, draws: torch.Generator) -> None:
        """A little noise on the inner kept vectors of these layers."""
        rows = held.X[places]
        inner = rows[:, HIGH - 1 :: LOW]
        inner.add_(torch.randn(inner.shape, generator=draws).to(inner), alpha=NOISE / inner.shape[-1] ** 0.5)
        held.X[places] = orthonormal(rows)

    def _refresh(
        self,
        A: Tensor,
        sigma: Array,
        accepted: Mask,
        spec: PenaltySpec,
        held: Held,
        places: Places,
        draws: str,
        step: int,
    ) -> tuple[int, int]:
        """The moment term of A[places], into what is held; how many `exact` got and skipped."""
        assert held.dense is not None
        alone = slice(places[0], places[0] + 1)
        W = A[alone] if len(places) == 1 else A[places]
        out = held.dense[alone] if len(places) == 1 else torch.empty_like(W)
        sigma, refused, skipped = sigma[places], np.zeros(len(W), dtype=bool), 0
        narrow = too_narrow(sigma, torch.finfo(W.dtype).eps)
        if by_products((W.shape[1], W.shape[2])):
            tall = upright(W)
            found = moments_by_products(W, torch.bmm(tall.mT, tall), sigma, spec, out)
            refused = ~accepted[places] | narrow
        else:
            Z = signs((len(W), 2 * self.probes, min(W.shape[1:])), generator_for(self.seed, draws, step)).to(W)
            found = moments_by_probes(W, Z, sigma, spec, out)
            out[torch.from_numpy(narrow)] = 0  # what is found there is magnified rounding, and `exact` would be cubic
            found.through[narrow] = 0
            found.s[narrow] = found.rho[narrow] = np.nan
        if refused.any():  # then there are no edges to speak of: the whole gradient is held
            mask, known = torch.from_numpy(refused), places[refused]
            exact = exact_with_edges(W[mask], replace(spec, alpha1=0.0))[0]
            out[mask] = exact.gradient
            # One that it skips keeps the moments it had, and has no gradient of them until its next turn.
            s, rho = array(exact.moments), array(exact.rho_moment)
            missing, skipped = np.isnan(rho), exact.skipped
            found.s[refused] = np.where(missing[:, None], held.moments.numpy()[known], s)
            found.rho[refused] = np.where(missing, held.rho_moment.numpy()[known], rho)
            found.through[refused] = 0
        if len(places) > 1:
            held.dense[places] = out
        for kept, value in zip((held.moments, held.rho_moment, held.through), found, strict=True):
            kept.numpy()[places] = value
        held.sigma.numpy()[places] = np.where((refused | narrow)[:, None], 0, sigma)
        held.square.numpy()[places] = np.square(array(torch.linalg.vector_norm(out, dim=(-2, -1))))
        return int((refused | narrow).sum()), skipped

    def forget(self, group: str) -> None:
        self._held.pop(group, None)

    def state_dict(self) -> dict[str, Any]:
        return {"seed": self.seed, "groups": {group: asdict(held) for group, held in self._held.items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seed = state["seed"]
        names = {field.name for field in fields(Held)}
        # Copied, because it is written to in place. What an earlier version kept had other parts: it starts anew.
        self._held = {
            group: Held(**deepcopy(held)).on_host() for group, held in state["groups"].items() if held.keys() == names
        }


def upright(W: Tensor) -> Tensor:
    """W (b, m, n) or its transpose, whichever is tall."""
    return W if W.shape[1] >= W.shape[2] else W.mT


def by_products(shape: tuple[int, int]) -> bool:
    m, n = shape
    return m * n * min(m, n) <= PRODUCT_WORK


def kept_shape(W: Tensor, count: int) -> tuple[int, int, int]:
    r = min(W.shape[1:])
    return (count, ROWS if r > SMALL_SIDE else 0, r)


def nothing_held(W: Tensor, count: int, spec: PenaltySpec) -> Held:
    """Of so many layers such as W, none of them evaluated yet."""

    def numbers(*shape: int, value: float = 0.0) -> Tensor:
        return torch.full((count, *shape), value, dtype=torch.float64)

    shape = kept_shape(W, count)
    return Held(
        evaluations=torch.zeros(count, dtype=torch.int64),
        step=torch.zeros(count, dtype=torch.int64),
        X=W.new_zeros(shape),
        lam=numbers(shape[1]),
        sigma=numbers(2),
        moments=numbers(spec.K + 1, value=torch.nan),
        rho_moment=numbers(value=torch.nan),
        through=numbers(2),
        dense=W.new_zeros(count, *W.shape[1:]) if spec.alpha2 else None,
        square=numbers(),
    )


def edges_of(W: Tensor, held: Held, degree: int, spec: PenaltySpec) -> tuple[Edges, Array, int]:
    """Edges of a tall W (B, M, r), checked, sharpened where ρ_cond needs it; σ on the host; how many took two rounds.

    What is held follows.
    """
    if W.shape[-1] <= SMALL_SIDE:
        edges = small_edges(W)
        return edges, array(edges.sigma), 0
    X, lam, image, residual = ritz_in_pieces(W, held.X, held.lam, degree)
    held.X.copy_(X)
    held.lam.copy_(lam)
    sigma = torch.linalg.vector_norm(image, dim=-1)
    accepted = small_residuals(held.lam.numpy(), array(residual), torch.finfo(W.dtype).eps)
    refused = ~accepted
    if spec.alpha1 and not by_products((W.shape[1], W.shape[2])):  # to sharpen them is cubic: that can often be avoided
        refused |= is_blunt(array(sigma), array(residual), spec.eps)
    if refused.any():
        mask = torch.from_numpy(refused)
        second = ritz_in_pieces(W[mask], held.X[mask], held.lam[mask], degree)
        held.X[mask], held.lam[mask], image[mask], residual[mask] = second
        sigma = torch.linalg.vector_norm(image, dim=-1)
        accepted = small_residuals(held.lam.numpy(), array(residual), torch.finfo(W.dtype).eps)
    U = image / sigma.clamp_min(torch.finfo(W.dtype).tiny).unsqueeze(-1)
    edges, on_host = Edges(sigma, U, held.X[:, EDGES], tensor(accepted, W)), array(sigma)
    if spec.alpha1 and is_blunt(on_host, array(residual), spec.eps).any():
        edges = sharp_edges(W, edges, residual, spec.eps, lambda blunt: torch.bmm(W[blunt].mT, W[blunt]))
        held.X[:, HIGH] = edges.V[:, 1]
        held.X.copy_(orthonormal(held.X))
        on_host = array(edges.sigma)
    return edges, on_host, int(refused.sum())


def small_residuals(lam: Array, residual: Array, eps: float) -> Mask:
    """Whether the residuals of both edges are small against the spread, or all that is there is rounding, (B,)."""
    top, bottom = lam[:, 0], lam[:, HIGH]
    limit = ACCEPTED_RESIDUAL * (top - bottom) + ROUNDING * eps * top
    return residual.max(-1) <= limit


def ritz_in_pieces(W: Tensor, X: Tensor, lam: Tensor, degree: int) -> Ritz:
    """`ritz_pairs` of W (B, M, r), in pieces that the workers share; lam on the host."""
    scale, shift = (tensor(values, W) for values in bulk(lam.numpy(), torch.finfo(W.dtype).eps))
    pieces = [
        partial(ritz_pairs, W[i:j], X[i:j], scale[i:j], shift[i:j], degree) for i, j in chunk_bounds(W, CHUNK_ENTRIES)
    ]
    found = shared_workers().map(pieces)
    whole = found[0] if len(found) == 1 else Ritz(*map(torch.cat, zip(*found, strict=True)))
    return whole._replace(lam=whole.lam.cpu())


def follow_edges_(held: Held, sigma: Array, shape: tuple[int, int], spec: PenaltySpec) -> Places:
    """Moments and what they give at the edges, moved to the edges σ (B, 2) of now; the places where that went wrong.

    There what lies between the edges has moved too far, and the moments have to be computed.
    """
    at = held.sigma.numpy()
    old, new = normalisation(at, shape, spec), normalisation(sigma, shape, spec)
    known = np.flatnonzero(~(old.at_floor | new.at_floor))
    if not len(known):
        return known
    old, new = old.of(known), new.of(known)
    s, rho, through = (kept.numpy() for kept in (held.moments, held.rho_moment, held.through))
    traces = traces_at(new, old, old.n * s[known])
    for sign, t, norm in ((-1, old.n * s[known], old), (1, traces, new)):
        of_t, rho_of_t = polynomial_moments(t, norm, spec)
        through[known] += sign * slopes(t, norm, spec, of_t).through
        rho[known] += sign * rho_of_t
    s[known], at[known] = traces / new.n, sigma[known]
    return known[~(np.abs(s[known]) <= MOST_MOMENT).all(-1)]


def factors(W: Tensor, edges: Edges, sigma: Array, spec: PenaltySpec, held: Held) -> tuple[Tensor, Tensor, Tensor]:
    """What falls on the edges of W (B, m, n) as left @ right, and the norm of all of the gradient."""
    pairs = min(2, *W.shape[1:])  # a matrix of one row or column has but one
    coefficient = edge_slopes(sigma[:, :pairs], held.through.numpy()[:, :pairs], spec)
    U = edges.U[:, :pairs] * tensor(coefficient, W).unsqueeze(-1)
    V = edges.V[:, :pairs]
    left, right = (U.mT, V) if W.shape[1] >= W.shape[2] else (V.mT, U)
    # The pairs are orthonormal, so ‖left @ right‖² is that of the coefficients.
    square = np.square(coefficient).sum(-1)
    if held.dense is not None:
        across = torch.bmm(right, held.dense.mT)  # (B, 2, m): a product of rows, the fast way round
        square += held.square.numpy() + 2 * array((left.mT * across).sum((-2, -1)))
    return left, right, tensor(np.sqrt(np.maximum(square, 0)), W)


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
