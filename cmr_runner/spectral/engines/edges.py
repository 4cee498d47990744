"""The two extremal singular pairs of a tall W (B, M, r), M >= r, checked against themselves."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from cmr_runner.spectral.engines.host import Array
from cmr_runner.spectral.engines.lanczos import RowsTimesGram, ritz_edges

Values = TypeVar("Values", Tensor, Array)

ACCEPTED_RESIDUAL = 0.05  # of the spread: gaps grow with its square, and on real runs it is rarely passed
RELATIVE_RESIDUAL = 0.25  # of λ_min + ε: past it, σ_min is not known well enough for the slope of ρ_cond
INVERSE_STEPS = 6
ROUNDING = 100  # times eps·λ_max: all there is to see in a spectrum of equal values
FLOAT32_GRAM = 1e-4  # λ_min/λ_max that a float32 Gram matrix still resolves to three digits


class Edges(NamedTuple):
    """Greatest and least pair, in this order along dim 1."""

    sigma: Tensor  # (B, 2)
    U: Tensor  # (B, 2, M) unit rows
    V: Tensor  # (B, 2, r) unit rows
    accepted: Tensor  # (B,) bool: both residuals are small


def krylov_edges(W: Tensor, times_gram: RowsTimesGram, start: Tensor, steps: int) -> tuple[Edges, Tensor]:
    """Edges from a Krylov space of the Gram matrix, and the residuals ‖xG − λx‖ of both, (B, 2).

    σ is ‖Wx‖, not √θ: it keeps half the digits of W where the Gram matrix has none left.
    """
    ritz = ritz_edges(times_gram, start, steps)
    return edges_from(torch.bmm(ritz.X, W.mT), ritz.X, ritz.residual), ritz.residual


def gram_edges(W: Tensor, G: Tensor, start: Tensor, steps: int, eps: float, *, sharp: bool = True) -> Edges:
    """Edges of W whose Gram matrix G (B, r, r) is at hand.

    Lanczos resolves the low edge to a fraction of the whole spread, all that Ĝ and its moments need. Where that is
    not small against λ_min itself, the pair is sharpened for ρ_cond by Lanczos on the inverse, in float32 and, if κ is
    then still large, in float64; not if `sharp` is false.
    """
    edges, residual = krylov_edges(W, lambda X: torch.bmm(X, G), start, steps)
    return sharp_edges(W, edges, residual, eps, lambda blunt: G[blunt]) if sharp else edges


def sharp_edges(W: Tensor, edges: Edges, residual: Tensor, eps: float, gram: Callable[[Tensor], Tensor]) -> Edges:
    """The edges with the low pair sharpened where its residual is not small against λ_min + ε.

    `gram` gives the Gram matrices of the layers under a mask (B,).
    """
    blunt = is_blunt(edges.sigma, residual, eps)
    if blunt.any():
        edges = replaced_edges(edges, blunt, _sharpened(W[blunt], gram(blunt), _select(edges, blunt)))
        ratio = (edges.sigma[:, 1] / edges.sigma[:, 0]).square()
        lost = blunt & ~(ratio > FLOAT32_GRAM)
        if W.dtype != torch.float64 and lost.any():
            W64 = W[lost].double()
            in_double = _sharpened(W64, torch.bmm(W64.mT, W64), _cast(_select(edges, lost), torch.float64))
            edges = replaced_edges(edges, lost, _cast(in_double, W.dtype))
    return edges


def is_blunt(sigma: Values, residual: Values, eps: float) -> Any:
    """Whether the low edge is not known well enough for the slope of ρ_cond, (B,); of tensors or arrays (B, 2)."""
    return residual[:, 1] > RELATIVE_RESIDUAL * (sigma[:, 1] ** 2 + eps)


def _sharpened(W: Tensor, G: Tensor, edges: Edges) -> Edges:
    """The low pair again, as the high edge of (G + μI)⁻¹; μ, far below λ_min, keeps the factorisation positive."""
    r = G.shape[-1]
    lam_max = edges.sigma[:, 0].square()
    mu = 4 * torch.finfo(G.dtype).eps * r**0.5 * lam_max
    shifted = G.clone()
    shifted.diagonal(dim1=-2, dim2=-1).add_(mu.unsqueeze(-1))
    L, info = torch.linalg.cholesky_ex(shifted)
    L = torch.where((info == 0)[:, None, None], L, torch.eye(r).to(L))  # then x stays what it was, and is checked
    inverse = ritz_edges(lambda X: torch.cholesky_solve(X.mT, L).mT, edges.V[:, 1], INVERSE_STEPS)
    x = torch.where((info == 0)[:, None, None], inverse.X[:, :1], edges.V[:, 1:])
    V = torch.cat([edges.V[:, :1], x], 1)
    lam = torch.linalg.vector_norm(torch.bmm(V, W.mT), dim=-1, keepdim=True).square()
    residual = torch.linalg.vector_norm(torch.bmm(torch.bmm(V, W.mT), W) - lam * V, dim=-1)
    return edges_from(torch.bmm(V, W.mT), V, residual)


def edges_from(Y: Tensor, V: Tensor, residual: Tensor) -> Edges:
    """From unit rows V (B, 2, r), their images Y = VWᵀ (B, 2, M) and residuals, which may be a part of the spread."""
    sigma = torch.linalg.vector_norm(Y, dim=-1)
    # Where σ = 0 any unit u serves: every slope that multiplies it is 0 or finite times 0.
    U = Y / sigma.clamp_min(torch.finfo(Y.dtype).tiny).unsqueeze(-1)
    lam = sigma.square()
    limit = ACCEPTED_RESIDUAL * (lam[:, 0] - lam[:, 1]) + ROUNDING * torch.finfo(Y.dtype).eps * lam[:, 0]
    return Edges(sigma, U, V, (residual <= limit.unsqueeze(-1)).all(-1))


def _select(edges: Edges, mask: Tensor) -> Edges:
    """The edges of the matrices under a boolean mask (B,)."""
    return Edges(*(field[mask] for field in edges))


def replaced_edges(edges: Edges, mask: Tensor, values: Edges) -> Edges:
    """The edges with those under a boolean mask (B,) taken from `values`, which holds those alone."""
    return Edges(*(field.index_put((mask,), value) for field, value in zip(edges, values, strict=True)))


def _cast(edges: Edges, dtype: torch.dtype) -> Edges:
    return Edges(edges.sigma.to(dtype), edges.U.to(dtype), edges.V.to(dtype), edges.accepted)
