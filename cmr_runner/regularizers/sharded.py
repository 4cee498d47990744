"""Weights that are split over several processes, as by FSDP2's fully_shard.

Each weight has an owner, which computes its spectra. An evaluation takes two all-to-alls and two small sums: the pieces
of every weight travel to its owner, and the pieces of its gradient travel back. Of P regularised numbers over N
processes, each sends and receives about P(N − 1)/N² each way, and holds the P/N numbers of the weights that it owns.
Where layers take turns, P is of those whose turn it is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from copy import copy
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from cmr_runner.checks import ArgumentError
from cmr_runner.regularizers.addition import grad_of
from cmr_runner.regularizers.layers import Weight
from cmr_runner.regularizers.mixing import global_norm, norms
from cmr_runner.regularizers.processes import Group


def shards_of(model: nn.Module, weights: Sequence[Weight], turns: Mapping[str, int]) -> Shards | None:
    """How the weights of a model are split; None if every process holds all of them. turns: by the weights' names."""
    if not (dist.is_available() and dist.is_initialized()):
        return None
    from torch.distributed.tensor import DTensor

    sharded = [p for p in model.parameters() if isinstance(p, DTensor)]
    return Shards(sharded, [weight for weight in weights if weight.parameters], turns) if sharded else None


class Shards:
    """Where the pieces of the weights are, and which process computes the spectra of each."""

    def __init__(self, sharded: Sequence[Any], weights: Sequence[Weight], turns: Mapping[str, int]) -> None:
        (mesh, dimension), *others = {(p.device_mesh, _mesh_dimension(p)) for p in sharded}
        if others:
            raise ArgumentError("model", "model is sharded over more than one mesh, which is not supported")
        self.processes = Group(mesh.get_group(dimension))
        first = local(sharded[0])
        self._empty = first.new_empty(0, dtype=torch.promote_types(first.dtype, torch.float32))
        self.weights = list(weights)
        for weight in weights:
            if weight.is_parametrised:
                raise ArgumentError(
                    "model", f"model has a parametrised and sharded weight, {weight.name}: not supported"
                )
        costs = [weight.effective().numel() * min(weight.layout.shapes(weight.effective())[0]) for weight in weights]
        ranks = self.processes.owners(costs, [turns[weight.name] for weight in weights])
        self.owner = {weight.name: rank for weight, rank in zip(weights, ranks, strict=True)}
        self.mine = [weight for weight in weights if self.owner[weight.name] == self.processes.rank]

    def only(self, names: Collection[str]) -> Shards:
        """The same of these weights alone: nothing of the others travels."""
        found = copy(self)
        found.weights = [weight for weight in self.weights if weight.name in names]
        found.mine = [weight for weight in self.mine if weight.name in names]
        return found

    def norm(self, gradients: Sequence[Tensor]) -> Tensor:
        """‖·‖₂ of all gradients, from the pieces of all processes. Collective."""
        pieces = [local(g) for g in gradients if _dimension(g) is not None]
        whole = [local(g) for g in gradients if _dimension(g) is None]
        return (self.processes.sum_(self._squares(pieces)) + self._squares(whole)).sqrt()

    def gathered(self) -> dict[str, Tensor]:
        """The whole of each weight that this process owns. Collective."""
        size, rank = self.processes.size, self.processes.rank
        sent = [[local(w.effective()) for w in self._of(to) if to != rank and _is_cut(w)] for to in range(size)]
        cuts = {weight.name: self._cut(weight, _empty(weight)) for weight in self.mine}
        expected = [[cuts[w.name][i] for w in self.mine if i != rank and _is_cut(w)] for i in range(size)]
        received = [iter(pieces) for pieces in self._exchanged(sent, expected)]
        found: dict[str, Tensor] = {}
        for weight in self.mine:
            own = local(weight.effective())
            if _is_cut(weight):
                pieces = [own if i == rank else next(received[i]).to(own.dtype) for i in range(size)]
                own = torch.cat(pieces, _dimension(weight.effective()) or 0)
            found[weight.name] = own
        return found

    def scattered(self, gradients: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """This process's piece of every weight's gradient, from the whole gradients of the owners. Collective."""
        size = self.processes.size
        sent = [[self._cut(w, gradients[w.name])[to] for w in self.mine] for to in range(size)]
        expected = [[local(w.effective()) for w in self._of(i)] for i in range(size)]
        received = self._exchanged(sent, expected)
        return {w.name: piece for i in range(size) for w, piece in zip(self._of(i), received[i], strict=True)}

    def _of(self, rank: int) -> list[Weight]:
        return [weight for weight in self.weights if self.owner[weight.name] == rank]

    def _cut(self, weight: Weight, whole: Tensor) -> list[Tensor]:
        """What each process holds of a weight: its piece, or all of it if the weight is not sharded."""
        size, dimension = self.processes.size, _dimension(weight.effective())
        if dimension is None:
            return [whole] * size
        pieces = list(whole.chunk(size, dimension))
        return pieces + [whole.narrow(dimension, 0, 0)] * (size - len(pieces))

    def _exchanged(self, sent: list[list[Tensor]], expected: list[list[Tensor]]) -> list[list[Tensor]]:
        """What the others sent to this process, by sender, in the shapes of `expected`: one all-to-all."""
        empty = self._empty
        outgoing = torch.cat([empty, *(piece.flatten().to(empty.dtype) for pieces in sent for piece in pieces)])
        counts = [[piece.numel() for piece in pieces] for pieces in expected]
        incoming = empty.new_empty(sum(map(sum, counts)))
        sizes = [sum(piece.numel() for piece in pieces) for pieces in sent]
        dist.all_to_all_single(incoming, outgoing, [sum(c) for c in counts], sizes, group=self.processes.group)
        from_each = incoming.split([sum(c) for c in counts])
        return [
            [flat.view(like.shape) for flat, like in zip(part.split(count), pieces, strict=True)]
            for part, count, pieces in zip(from_each, counts, expected, strict=True)
        ]

    def _squares(self, tensors: Sequence[Tensor]) -> Tensor:
        return torch.stack(norms(list(tensors))).square().sum() if tensors else self._empty.new_zeros(())


class PieceAddition:
    """The pieces of a gradient that are to be added to the pieces of `.grad`."""

    def __init__(self, weights: Sequence[Weight], pieces: Mapping[str, Tensor], norms: dict[str, Tensor]) -> None:
        self._weights, self._pieces = weights, pieces
        self.norms, self.norm = norms, global_norm(list(norms.values()))  # of each layer's gradient, and of all

    def add_(self, factor: Tensor, *, overwrite: bool) -> None:
        for weight in self._weights:
            for parameter in weight.parameters:  # none, where it was frozen since
                grad = local(grad_of(parameter))
                grad.add_((factor * self._pieces[weight.name]).to(grad.dtype))


def local(tensor: Tensor) -> Tensor:
    """This process's piece."""
    return tensor.to_local() if is_sharded(tensor) else tensor  # type: ignore[attr-defined]


def is_sharded(tensor: Tensor) -> bool:
    return hasattr(tensor, "to_local")


def _is_cut(weight: Weight) -> bool:
    return _dimension(weight.effective()) is not None


def _dimension(tensor: Tensor) -> int | None:
    """The dimension along which a tensor is cut; None if it is whole."""
    if not is_sharded(tensor):
        return None
    placement = tensor.placements[_mesh_dimension(tensor)]  # type: ignore[attr-defined]
    return placement.dim if placement.is_shard() else None


def _mesh_dimension(tensor: Any) -> int:
    """The dimension of the mesh over which a tensor is sharded; the last one if it is not sharded."""
    cut = [i for i, placement in enumerate(tensor.placements) if not placement.is_replicate()]
    if len(cut) > 1 or any(not tensor.placements[i].is_shard() for i in cut):
        raise ArgumentError("model", f"model is sharded as {tensor.placements}: only one Shard is supported (FSDP2)")
    return cut[0] if cut else len(tensor.placements) - 1


def _empty(weight: Weight) -> Tensor:
    return torch.empty(weight.effective().shape, device="meta")
