"""The kept subspace: orthonormal whatever W is, and edges that it follows where a single vector would lose them."""

import pytest
import torch

from cmr_runner.spectral import NonFiniteError
from cmr_runner.spectral.engines.subspace import KEPT, krylov_images, subspace_edges

from .layers import layers, walk

ROWS = 2 * KEPT


def start(B, r, seed=0):
    return torch.randn(B, ROWS, r, generator=torch.Generator().manual_seed(seed))


def few_values(B, r, values):
    """Square matrices with so many distinct singular values: a Krylov space of them is soon exhausted."""
    generator = torch.Generator().manual_seed(1)
    U, V = (torch.linalg.qr(torch.randn(B, r, r, generator=generator))[0] for _ in range(2))
    return (U * torch.tensor(values).repeat(-(-r // len(values)))[:r]) @ V.mT


EXHAUSTED = {
    "orthogonal": few_values(3, 64, [0.06]),
    "two values": few_values(3, 64, [1.0, 3.0]),
    "rank one": torch.ones(3, 64, 64),
    "many": layers(3, 64, 64, kappa=100),
}


@pytest.mark.parametrize("name", EXHAUSTED)
def test_rows_stay_orthonormal_where_the_space_is_exhausted(name):
    W, blocks = EXHAUSTED[name], 8
    Q, P, Y = krylov_images(W, start(3, 64), blocks).split(64, -1)
    torch.testing.assert_close(Q @ Q.mT, torch.eye(blocks * ROWS).expand(3, -1, -1), rtol=0, atol=1e-5)
    torch.testing.assert_close(Y, Q @ W.mT)
    torch.testing.assert_close(P, Q @ W.mT @ W, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["orthogonal", "two values"])
def test_edges_of_few_distinct_values_are_exact(name):
    W = EXHAUSTED[name]
    edges, residual, _ = subspace_edges(W, start(3, 64), 4)
    sigma = torch.linalg.svdvals(W)[:, [0, -1]]
    torch.testing.assert_close(edges.sigma, sigma, rtol=1e-5, atol=0)
    assert edges.accepted.all()
    assert (residual <= 1e-5 * sigma[:, :1] ** 2).all()


def test_what_is_kept_is_orthonormal_and_goes_from_the_edges_inwards():
    W = layers(4, 80, 64, kappa=5)
    _, _, X = subspace_edges(W, start(4, 64), 8)
    torch.testing.assert_close(X @ X.mT, torch.eye(ROWS).expand(4, -1, -1), rtol=0, atol=1e-5)
    sigma = torch.linalg.vector_norm(X @ W.mT, dim=-1)
    assert (sigma[:, :KEPT].diff() <= 0).all()
    assert (sigma[:, KEPT:].diff() >= 0).all()


def test_edges_are_followed_as_the_layer_moves():
    """From a cold start the gap closes over the steps, although every step has only four products."""
    X, gaps = start(4, 96), []
    for W in walk(layers(4, 128, 96, kappa=3), 12, size=1e-4):
        edges, _, X = subspace_edges(W, X, 4)
        sigma = torch.linalg.svdvals(W)
        gaps.append(float((edges.sigma[:, 1] / sigma[:, -1] - 1).max()))
    assert gaps[-1] < 0.01 < gaps[0]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e30])
def test_what_cannot_be_squared_is_refused(bad):
    W = layers(2, 48, 48, kappa=3)
    W[1, 3, 4] = bad
    with pytest.raises(NonFiniteError):
        subspace_edges(W, start(2, 48), 4)
