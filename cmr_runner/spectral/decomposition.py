"""The one place that calls LAPACK: inputs are checked before, failures are retried and then reported."""

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

T = TypeVar("T")


class NonFiniteError(ValueError):
    """A matrix holds NaN or infinity, so it has no spectrum."""


class DecompositionError(RuntimeError):
    """LAPACK did not converge, neither in the matrix's own precision nor in float64."""


def check_finite(W: Tensor) -> None:
    """Raise NonFiniteError before LAPACK sees W: given NaN it can return finite nonsense."""
    # A sum is finite only if every term is, up to overflow, so the full mask is built only in doubt.
    if not torch.isfinite(W.sum()) and not torch.isfinite(W).all():
        bad = int((~torch.isfinite(W)).sum())
        raise NonFiniteError(f"matrix of shape {tuple(W.shape)} holds {bad} entries that are not finite")


def working(W: Tensor) -> Tensor:
    """W detached and in a dtype LAPACK knows: float16 and bfloat16 become float32."""
    return W.detach().float() if W.dtype in (torch.float16, torch.bfloat16) else W.detach()


def converging(decompose: Callable[[Tensor], T], W: Tensor) -> T:
    """decompose(W), again in float64 if it does not converge, DecompositionError if that fails too."""
    try:
        return decompose(W)
    except torch.linalg.LinAlgError as first:
        try:
            return decompose(W.double())
        except torch.linalg.LinAlgError:
            raise DecompositionError(
                f"no convergence for a matrix of shape {tuple(W.shape)} in {W.dtype} or float64: {first}"
            ) from first


def svd(W: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Thin SVD W = U diag(sigma) Vh, U (..., m, r), sigma (..., r) descending, Vh (..., r, n).

    In W's precision, at least float32. SVD of W, not eigh of WᵀW: its relative error in σ_min is about
    finfo.eps · κ, where the Gram matrix gives finfo.eps · κ².
    """
    W = working(W)
    check_finite(W)
    U, sigma, Vh = converging(lambda A: torch.linalg.svd(A, full_matrices=False), W)
    return U.to(W.dtype), sigma.to(W.dtype), Vh.to(W.dtype)


def spectral_gradient(U: Tensor, slopes: Tensor, Vh: Tensor) -> Tensor:
    """∇_W f(σ(W)) = U diag(∂f/∂σ_i) Vᵀ, (..., m, n), from slopes ∂f/∂σ_i (..., r): the form of every gradient here."""
    # An enclosing autocast would take this product, and it alone, in half precision.
    with torch.autocast(U.device.type, enabled=False):
        return (U * slopes.unsqueeze(-2)) @ Vh


def saturated(A: Tensor, dtype: torch.dtype) -> Tensor:
    """A in dtype, entries past its range at its largest number: slopes near 1/ε pass float16's 65504."""
    if dtype != torch.float16:
        return A.to(dtype)
    limit = torch.finfo(dtype).max
    return A.clamp(-limit, limit).to(dtype)
