"""Moments and their gradient from random probes: the kernel polynomial method, O(p·K·mn), nothing cubic.

For rows z with E zᵀz = I, z T_k(Ĝ) zᵀ estimates t_k = tr T_k(Ĝ), and T_iᵀ(zᵀz)T_j estimates T_i T_j. With
V_i = Z T_i(Ĝ) for i <= q = ⌊K/2⌋, everything up to degree 2q + 1 is an inner product of two of them.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cmr_runner.spectral.engines.host import Array, array, tensor
from cmr_runner.spectral.engines.polynomials import derivative_coefficients, extend_, odd_trace


class Probed(NamedTuple):
    """Two independent blocks of p probes, carried through the recurrence. q + 1 entries each."""

    V: list[Tensor]  # Z T_i(Ĝ), (B, 2p, r): the first p rows are block 0
    Y: list[Tensor]  # V_i Wᵀ, (B, 2p, M)
    traces: Array  # (B, 2, K+1) estimates of t_0 ... t_K, a block each


def signs(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """±1 with equal chance: among probes with E zᵀz = I these know the diagonal exactly."""
    return torch.randint(0, 2, shape, generator=generator, dtype=torch.int8).float().mul_(2).sub_(1)


def probed(W: Tensor, Z: Tensor, c: Array, d: Array, K: int) -> Probed:
    """The recurrence T_{i+1} = 2ĜT_i − T_{i−1} on Z (B, 2p, r) for a tall W (B, M, r), Ĝ applied as two products."""
    scale, shift = (tensor(value, W)[:, None, None] for value in (1 / d, c / d))
    V, Y = [Z], [torch.bmm(Z, W.mT)]
    for i in range(K // 2):
        X = torch.bmm(Y[-1], W).mul_(scale).addcmul_(V[-1], shift, value=-1)  # V_i Ĝ
        V.append(X if i == 0 else X.mul_(2).sub_(V[-2]))
        Y.append(torch.bmm(V[-1], W.mT))
    return Probed(V, Y, _traces(V, Y, c, d, K))


def _traces(V: list[Tensor], Y: list[Tensor], c: Array, d: Array, K: int) -> Array:
    def product(i: int, j: int) -> Array:
        return _block_means(V[i], V[j])

    traces = [product(0, 0), product(0, 1)]
    extend_(traces, product, 2 * (K // 2))
    if K % 2:
        traces.append(odd_trace(_block_means(Y[-1], Y[-1]), traces, c[:, None], d[:, None]))
    return np.stack(traces, -1)


def _block_means(A: Tensor, B: Tensor) -> Array:
    """(1/p) Σ_rows <a, b> of each block, (B, 2)."""
    return array((A * B).sum(-1)).reshape(len(A), 2, -1).mean(-1)


class Splitting(NamedTuple):
    """p(Ĝ) = e I + Σ_ij C_ij T_i T_j."""

    e: Array  # (B,)
    C: Array  # (B, q+1, q+1), symmetric


def splitting(h: Array, means: Array) -> Splitting:
    """p = Σ_k h_k T_k', h (B, K+1), by polynomials of half its degree, q = ⌊K/2⌋.

    What stands before I needs no probes and has no noise; so the part of ZᵀZ/p − I that is common to all is moved
    there, C_00 −= α and e += α with α = Σ C_ij mean_i mean_j (`means` (B, K+1): of T_i over the eigenvalues, roughly).
    """
    of_e, of_C = _splitting_maps(h.shape[-1] - 1)
    C = np.tensordot(h, of_C, 1)
    m = means[:, : C.shape[-1], None]
    alpha = (m.swapaxes(1, 2) @ C @ m).ravel()
    C[:, 0, 0] -= alpha
    return Splitting(h @ of_e + alpha, C)


@cache
def _splitting_maps(K: int) -> tuple[Array, Array]:
    """What each T_k' gives to e, (K+1,), and to C, (K+1, q+1, q+1).

    Of its Chebyshev coefficients T_j stays T_jT_0 up to q, and T_{q+i} = 2T_qT_i − T_{q−i} beyond. Measured beside
    T_{2a} = 2T_aT_a − I: that has twice the variance. C is symmetric: the two orders of a product average their noise.
    """
    rest, q = derivative_coefficients(K).copy(), K // 2
    C = np.zeros((K + 1, q + 1, q + 1))
    for j in range(K - 1, q, -1):
        C[:, q, j - q] = 2 * rest[:, j]
        rest[:, 2 * q - j] -= rest[:, j]
    C[:, 1:, 0] += rest[:, 1 : q + 1]
    return rest[:, 0], (C + C.swapaxes(1, 2)) / 2


def gradient_estimate(W: Tensor, probes: Probed, h: Array, out: Tensor) -> Tensor:
    """out = W p(Ĝ), p = Σ_k h_k T_k', for a tall W: e W + Σ_ij C_ij Y_iᵀ V_j / p, averaged over the blocks.

    h (B, 2, K+1): row b weighs block b and must come from the other one, as the control α does here; then the
    estimate of h · T_k' is unbiased, being a product of independent factors.
    """
    n_probes = probes.V[0].shape[1] // 2
    other = probes.traces[:, ::-1]
    means = other / other[..., :1]
    K = h.shape[-1] - 1
    half = splitting(h.reshape(-1, K + 1), means.reshape(-1, K + 1))  # of 2B, the blocks of a matrix side by side
    e = tensor(half.e.reshape(len(W), 2).mean(1), W)
    C = tensor(half.C / (2 * n_probes), W)
    left = torch.bmm(C, _by_block(probes.Y).flatten(0, 1))  # Σ_i C_ji Y_i, (2B, q+1, p·M)
    right = _by_block(probes.V)
    M, r = W.shape[1:]
    return torch.mul(W, e[:, None, None], out=out).baddbmm_(left.view(len(W), -1, M).mT, right.view(len(W), -1, r))


def _by_block(rows: list[Tensor]) -> Tensor:
    """q + 1 tensors (B, 2p, r) as one (B, 2, q+1, p·r)."""
    return torch.stack([A.view(len(A), 2, -1) for A in rows], 2)
