"""A penalty's gradient on its way into the `.grad` of the parameters, in as few passes over them as it takes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from cmr_runner.regularizers.layers import Layer, Weight
from cmr_runner.regularizers.mixing import HALF, norms
from cmr_runner.spectral.decomposition import saturated
from cmr_runner.spectral.penalty import Penalty

Found = Sequence[tuple[Sequence[Layer], Penalty]]  # same-shape layers, and the penalty of all of them


class Addition:
    """What each parameter gets of an evaluation, and its norm. Frozen parameters get nothing.

    A plain weight takes its part in place: `dense` is added, and of `left @ right` only the factors are ever held. The
    gradient of a parametrised weight, or of one in half precision, is made whole first and pulled back.
    """

    def __init__(self, found: Found, effective: dict[str, Tensor]) -> None:
        self.norms: dict[str, Tensor] = {}  # of each layer's gradient
        self._norms: list[Tensor] = []
        self._dense: list[tuple[Tensor, Tensor, bool]] = []  # target, source, whether the source may be overwritten
        self._factors: list[tuple[list[Tensor], Tensor, Tensor]] = []  # targets, left (B, m, k), right (B, k, n)
        indirect: dict[str, tuple[Weight, dict[int, Tensor]]] = {}
        behind: dict[str, list[str]] = defaultdict(list)  # of such a weight: the layers
        for layers, penalty in found:
            targets = [_in_place(layer) for layer in layers]
            if any(target is None for target in targets):
                for layer, gradient in zip(layers, penalty.gradient, strict=True):
                    if layer.frozen:  # since the evaluation, which may serve several steps
                        continue
                    indirect.setdefault(layer.weight.name, (layer.weight, {}))[1][layer.index] = gradient
                    behind[layer.weight.name].append(layer.name)
            else:
                self._take(layers, penalty, targets)  # type: ignore[arg-type]
        for weight, parts in indirect.values():
            pulled = pulled_back(weight, parts, effective)
            self._dense += [(grad_of(parameter), gradient, True) for parameter, gradient in pulled]
            of_weight = norms([gradient for _, gradient in pulled])
            self._norms += of_weight
            if of_weight:
                names = behind[weight.name]
                whole = torch.linalg.vector_norm(torch.stack(of_weight))
                self.norms |= dict.fromkeys(names, whole / len(names) ** 0.5)
        self.norm = torch.linalg.vector_norm(torch.stack(self._norms)) if self._norms else torch.zeros(())

    def _take(self, layers: Sequence[Layer], penalty: Penalty, targets: list[Tensor]) -> None:
        if penalty.dense is not None:
            sources = penalty.dense.unbind(0)
            self._dense += [(t, s, not penalty.kept) for t, s in zip(targets, sources, strict=True)]
        if penalty.left is not None and penalty.right is not None:
            self._factors.append((targets, penalty.left, penalty.right))
        if penalty.norm is not None:
            found = penalty.norm.unbind(0)
        elif penalty.left is None and penalty.dense is not None:
            found = torch._foreach_norm(list(penalty.dense.unbind(0)))
        else:
            found = torch._foreach_norm(list(penalty.gradient.unbind(0)))
        self._norms += found
        self.norms |= dict(zip((layer.name for layer in layers), found, strict=True))

    def add_(self, factor: Tensor, *, overwrite: bool) -> None:
        """p.grad += factor · gradient. `overwrite`: nobody needs this evaluation's own tensors again."""
        by_way: dict[bool, tuple[list[Tensor], list[Tensor]]] = defaultdict(lambda: ([], []))
        for target, source, ours in self._dense:
            targets, sources = by_way[ours and overwrite]
            targets.append(target)
            sources.append(source)
        for in_place, (targets, sources) in by_way.items():
            if in_place:
                torch._foreach_mul_(sources, factor)
                torch._foreach_add_(targets, sources)
            elif factor.device.type == "cpu":  # reading it there waits for nothing
                torch._foreach_add_(targets, sources, alpha=float(factor))
            else:
                torch._foreach_add_(targets, torch._foreach_mul(sources, factor))
        for targets, left, right in self._factors:
            for target, L, R in zip(targets, left * factor, right, strict=True):
                target.addmm_(L, R)


def grad_of(parameter: nn.Parameter) -> Tensor:
    """Its `.grad`, zero where backward left none."""
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad


def _in_place(layer: Layer) -> Tensor | None:
    """The layer's matrix as a view of its parameter's `.grad`, None where there is no such view."""
    weight = layer.weight
    if weight.is_parametrised or layer.frozen:
        return None
    (parameter,) = weight.parameters
    if parameter.dtype in HALF:
        return None
    grad = grad_of(parameter)
    view = weight.matrix(grad, layer.index)
    return view if view.untyped_storage().data_ptr() == grad.untyped_storage().data_ptr() else None


def pulled_back(
    weight: Weight, parts: dict[int, Tensor], effective: dict[str, Tensor]
) -> list[tuple[nn.Parameter, Tensor]]:
    """The gradients of a weight's matrices, by their index, as gradients in its trainable parameters."""
    with torch.enable_grad():  # the pull-back needs the graph
        tensor = effective[weight.name] if weight.name in effective else weight.effective()
    matrices = [
        saturated(parts[index], tensor.dtype) if index in parts else torch.zeros_like(matrix)
        for index, matrix in enumerate(weight.matrices(tensor))
    ]
    return list(zip(weight.parameters, weight.pull_back(tensor, weight.assembled(matrices, tensor)), strict=True))
