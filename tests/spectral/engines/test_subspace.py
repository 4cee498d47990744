"""The kept vectors: orthonormal whatever W is, and edges that they follow where a single vector would lose them."""

import numpy as np
import pytest
import torch

from cmr_runner.spectral import NonFiniteError
from cmr_runner.spectral.engines import set_spectral_threads
from cmr_runner.spectral.engines.subspace import (
    EDGES,
    HIGH,
    LOW,
    ROWS,
    bulk,
    filtered,
    filtered_in_parts,
    first_rows,
    ritz_pairs,
)

from .layers import layers, walk

EPS = torch.finfo(torch.float32).eps


def cold(W, seed=0):
    start = torch.randn(len(W), W.shape[-1], generator=torch.Generator().manual_seed(seed))
    return first_rows(W, start.to(W))


def interval(lam, dtype=torch.float32):
    return [torch.from_numpy(a).to(dtype) for a in bulk(lam.double().numpy(), EPS)]


def step(W, X, lam, degree=4):
    return ritz_pairs(W, X, *interval(lam), degree)


def few_values(B, r, values):
    """Square matrices with so many distinct singular values: a Krylov space of them is soon exhausted."""
    generator = torch.Generator().manual_seed(1)
    U, V = (torch.linalg.qr(torch.randn(B, r, r, generator=generator))[0] for _ in range(2))
    return (U * torch.tensor(values).repeat(-(-r // len(values)))[:r]) @ V.mT


SIDE = 4 * ROWS  # twice what the kept and the filtered rows span: more of a space they would nearly exhaust
EXHAUSTED = {
    "orthogonal": few_values(3, SIDE, [0.06]),
    "two values": few_values(3, SIDE, [1.0, 3.0]),
    "rank one": torch.ones(3, SIDE, SIDE),
    "zero": torch.zeros(3, SIDE, SIDE),
    "one far out": few_values(3, SIDE, [1.0] * (SIDE - 1) + [1e3]),
    "many": layers(3, SIDE, SIDE, kappa=100),
}


@pytest.mark.parametrize("degree", [1, 4, 16])
@pytest.mark.parametrize("name", EXHAUSTED)
def test_rows_stay_orthonormal_where_the_filter_adds_nothing(name, degree):
    W = EXHAUSTED[name]
    X, lam = cold(W)
    for _ in range(5):
        X, lam, image, _ = step(W, X, lam, degree)
    torch.testing.assert_close(X @ X.mT, torch.eye(ROWS).expand(3, -1, -1), rtol=0, atol=1e-5)
    torch.testing.assert_close(image, X[:, EDGES] @ W.mT, rtol=1e-4, atol=1e-5 * float(W.norm()))


@pytest.mark.parametrize("name", ["orthogonal", "two values", "one far out"])
def test_edges_of_few_distinct_values_are_exact(name):
    W = EXHAUSTED[name]
    found = step(W, *cold(W))
    sigma = torch.linalg.svdvals(W.double())[:, [0, -1]]
    torch.testing.assert_close(found.image.double().norm(dim=-1), sigma, rtol=1e-4, atol=0)
    assert (found.residual <= 8 * ROWS * EPS * sigma[:, :1] ** 2).all()


def test_what_is_kept_goes_from_the_edges_inwards():
    W = layers(4, 80, 64, kappa=5)
    found = step(W, *cold(W))
    sigma = torch.linalg.vector_norm(found.X @ W.mT, dim=-1)
    assert (sigma[:, :HIGH].diff() <= 0).all()
    assert (sigma[:, HIGH:].diff() >= 0).all()
    torch.testing.assert_close(found.lam, sigma.double().square(), rtol=1e-4, atol=1e-7)


def test_the_filter_is_the_chebyshev_polynomial_of_the_gram_matrix():
    W = layers(2, 80, 64, kappa=5).double()
    X, lam = cold(W)
    scale, shift = interval(lam, torch.float64)
    A = (scale * (W.mT @ W) - shift * torch.eye(64)) / 2
    x, Q = torch.linalg.eigh(A)
    truth = X @ Q @ torch.diag_embed(torch.from_numpy(np.polynomial.chebyshev.chebval(x.numpy(), [0] * 6 + [1]))) @ Q.mT
    torch.testing.assert_close(filtered(W, X, X @ W.mT, scale, shift, 6), truth)


def test_a_large_layer_is_filtered_by_two_threads_to_the_same_bits():
    W = layers(1, 1024, 512, kappa=3)
    X, lam = cold(W)
    whole = filtered(W, X, X @ W.mT, *interval(lam), 3)
    found = []
    try:
        for threads in (1, 2):
            set_spectral_threads(threads)
            found.append(filtered_in_parts(W, X, X @ W.mT, *interval(lam), 3))
    finally:
        set_spectral_threads(1)
    assert torch.equal(*found)
    torch.testing.assert_close(found[0], whole, rtol=1e-4, atol=1e-4)


def test_the_bulk_ends_at_the_innermost_kept_values_unless_an_edge_stands_far_out():
    lam = np.concatenate([np.linspace(9, 8, HIGH), np.linspace(1, 2, LOW)])
    scale, shift = (float(a[0, 0, 0]) for a in bulk(lam[None], EPS))
    assert scale * 8 - shift == pytest.approx(2)
    assert scale * 2 - shift == pytest.approx(-2)
    lam[0] = 1000.0
    scale, shift = (float(a[0, 0, 0]) for a in bulk(lam[None], EPS))
    assert abs(scale * 1000 - shift) / 2 <= 20


def test_edges_are_followed_as_the_layer_moves():
    """From a cold start the gap closes over the steps, although every step has only four products with G."""
    moving = list(walk(layers(4, 128, 96, kappa=3), 12, size=1e-4))
    X, lam = cold(moving[0])
    gaps = [float((lam[:, HIGH].sqrt() / torch.linalg.svdvals(moving[0].double())[:, -1] - 1).max())]
    for W in moving:
        X, lam, image, _ = step(W, X, lam)
        gaps.append(float((image[:, 1].norm(dim=-1) / torch.linalg.svdvals(W)[:, -1] - 1).max()))
    assert gaps[-1] < 0.005 < gaps[0]


def test_a_layer_that_jumped_away_from_what_is_kept_starts_anew():
    """All of σ equal, so that the bulk is as narrow as rounding, then a large rank-one step in a new direction."""
    W = EXHAUSTED["orthogonal"]
    X, lam = cold(W)
    jumped = W + torch.ones(SIDE, SIDE)
    found = step(jumped, X, lam, degree=16)
    sigma = torch.linalg.svdvals(jumped.double())
    torch.testing.assert_close(found.image.double().norm(dim=-1)[:, 0], sigma[:, 0], rtol=1e-4, atol=0)
    assert torch.isfinite(found.X).all()


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e30])
def test_what_cannot_be_squared_is_refused(bad):
    W = layers(2, 48, 48, kappa=3)
    X, lam = cold(W)
    W[1, 3, 4] = bad
    with pytest.raises(NonFiniteError):
        step(W, X, lam)
