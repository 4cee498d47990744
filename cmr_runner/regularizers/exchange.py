"""Exchanges between the processes what each found for its own layers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from cmr_runner.regularizers.addition import Found
from cmr_runner.regularizers.layers import Layer
from cmr_runner.regularizers.processes import Processes
from cmr_runner.spectral.decomposition import NonFiniteError
from cmr_runner.spectral.engines.workers import Task
from cmr_runner.spectral.penalty import Penalty


def own_result(task: Task[Found]) -> Found:
    """The task's result, or a value of nan if a layer is not finite: if this raised, the others would wait for ever."""
    try:
        return task.result()
    except NonFiniteError:
        return [([], Penalty(value=torch.tensor([torch.nan])))]


def exchanged(
    mine: Found, layers: Sequence[Layer], processes: Processes, like: Tensor, *, gradients: bool = True
) -> Found:
    """The penalties of all layers, by one all-reduce of a vector in which each process fills in its own layers.

    gradients=False: only their norms are exchanged. like: a tensor of the dtype and device for the exchange.
    """
    parts = [like.new_tensor(_totals(mine))]
    own = {l.name: numbers for of_group, p in mine if of_group for l, numbers in zip(of_group, _rows(p), strict=True)}
    for layer in layers:
        scalars, gradient = own.get(layer.name, (like.new_zeros(3), like.new_zeros(layer.shape)))
        parts += [scalars, gradient if gradients else torch.linalg.vector_norm(gradient)]
    flat = processes.sum_(torch.cat([part.flatten().to(like) for part in parts]))
    totals, *pieces = flat.split([part.numel() for part in parts])
    not_finite, skipped, fallbacks = totals.tolist()
    if math.isnan(not_finite):
        raise NonFiniteError("a layer that one of the processes computes is not finite")
    found: list[tuple[list[Layer], Penalty]] = []
    for layer, scalars, rest in zip(layers, pieces[::2], pieces[1::2], strict=True):
        value, *edges = scalars.split(1)
        sigma_max, sigma_min = edges if bool(scalars[1:].any()) else (None, None)
        dense, norm = (rest.view(1, *layer.shape), None) if gradients else (None, rest)
        penalty = Penalty(value=value, dense=dense, norm=norm, sigma_max=sigma_max, sigma_min=sigma_min)
        found.append(([layer], penalty))
    if found:
        found[0][1].skipped, found[0][1].fallbacks = int(skipped), int(fallbacks)
    return found


def _totals(found: Found) -> list[float]:
    return [
        sum(float(penalty.value.sum()) for _, penalty in found),
        sum(penalty.skipped for _, penalty in found),
        sum(penalty.fallbacks for _, penalty in found),
    ]


def _rows(penalty: Penalty) -> list[tuple[Tensor, Tensor]]:
    """Of each matrix: its value, σ_max and σ_min (3,), zero if the penalty does not compute these, and the gradient."""
    gradient = penalty.gradient
    zeros = gradient.new_zeros(len(gradient))
    edges = [zeros if sigma is None else sigma for sigma in (penalty.sigma_max, penalty.sigma_min)]
    scalars = torch.stack([scalar.to(zeros) for scalar in (penalty.value, *edges)], -1)
    return list(zip(scalars.unbind(0), gradient.unbind(0), strict=True))
