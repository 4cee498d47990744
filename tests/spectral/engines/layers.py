"""Batches of layers whose spectrum is known, and a walk that moves them as an optimiser would."""

from collections.abc import Iterator

import torch
from torch import Tensor

from cmr_runner.spectral.engines.edges import Edges


def layers(B: int, m: int, n: int, kappa: float, *, sigma_max: float = 0.7, seed: int = 0) -> Tensor:
    """(B, m, n), float32, σ evenly spaced from sigma_max down to sigma_max/κ."""
    generator = torch.Generator().manual_seed(seed)
    r = min(m, n)
    U, V = (torch.linalg.qr(torch.randn(B, side, r, dtype=torch.float64, generator=generator))[0] for side in (m, n))
    sigma = sigma_max * torch.linspace(1, 1 / kappa, r, dtype=torch.float64)
    return ((U * sigma) @ V.mT).float()


def walk(W: Tensor, steps: int, size: float = 1e-3, seed: int = 0) -> Iterator[Tensor]:
    """W, then W after 1, 2, ... steps of entries ±size: what Adam does at first."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        yield W
        W = W + size * torch.randn(W.shape, generator=generator).sign()


def svd_edges(W: Tensor) -> Edges:
    """Exact edges of W in its own precision, on the short side."""
    tall = W if W.shape[1] >= W.shape[2] else W.mT
    U, sigma, Vh = torch.linalg.svd(tall, full_matrices=False)
    ends = [0, -1]
    return Edges(sigma[:, ends], U[:, :, ends].mT, Vh[:, ends], torch.ones(len(W), dtype=torch.bool))


def double(edges: Edges) -> Edges:
    return Edges(edges.sigma.double(), edges.U.double(), edges.V.double(), edges.accepted)


def gram(W: Tensor) -> Tensor:
    tall = W if W.shape[1] >= W.shape[2] else W.mT
    return tall.mT @ tall


def relative(A: Tensor, B: Tensor) -> float:
    return float((A.double() - B.double()).norm() / B.double().norm())
