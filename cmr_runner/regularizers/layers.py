"""Which weights of a model are regularised, and how their effective values are read and pulled back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from cmr_runner.spectral import as_matrix

_NORMS = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.LocalResponseNorm)
_EMBEDDINGS = (nn.Embedding, nn.EmbeddingBag)


@dataclass(frozen=True)
class LayerRule:
    """Which weights count as layers.

    include, exclude: name patterns with * and ?, as `layers.*.weight` or `*head*`; include empty means all.
    types: class names of modules, as `Linear` or `Conv2d`; empty means all but norms and embeddings.
    min_side: the smallest min(rows, columns); below 2 a spectrum is one number and κ is always 1.
    """

    include: Sequence[str] = ()
    exclude: Sequence[str] = ()
    types: Sequence[str] = ()
    min_side: int = 2

    def __post_init__(self) -> None:
        for key in ("include", "exclude", "types"):
            value = getattr(self, key)
            if isinstance(value, str):
                raise ValueError(
                    f"regularizer.layers.{key} must be a list of patterns, got the single string {value!r}"
                )
        if isinstance(self.min_side, bool) or not isinstance(self.min_side, int) or self.min_side < 1:
            raise ValueError(f"regularizer.layers.min_side must be an integer >= 1, got {self.min_side!r}")

    def admits(self, name: str, module: nn.Module, matrix: Tensor) -> bool:
        if self.types:
            # By ancestry: a parametrised Linear is a ParametrizedLinear, a subclass of Linear.
            if not {cls.__name__ for cls in type(module).__mro__} & set(self.types):
                return False
        elif isinstance(module, _NORMS + _EMBEDDINGS):
            return False
        if self.include and not any(fnmatch(name, pattern) for pattern in self.include):
            return False
        return min(matrix.shape) >= self.min_side and not any(fnmatch(name, pattern) for pattern in self.exclude)


@dataclass(frozen=True)
class Weight:
    """One weight tensor of a module, plain or parametrised, holding one matrix or several stacked ones."""

    name: str
    module: nn.Module = field(repr=False)
    attribute: str
    parts: tuple[str, ...] = ("",)  # suffixes: a fused q, k, v projection holds three matrices

    @property
    def is_parametrised(self) -> bool:
        return parametrize.is_parametrized(self.module, self.attribute)

    @property
    def parameters(self) -> list[nn.Parameter]:
        """The trainable parameters behind the weight: itself, or the originals of its parametrisation."""
        if not self.is_parametrised:
            return [getattr(self.module, self.attribute)]
        return [p for p in self._parametrisation.parameters() if p.requires_grad]

    @property
    def _parametrisation(self) -> parametrize.ParametrizationList:
        return self.module.parametrizations[self.attribute]  # type: ignore[index,return-value]

    def effective(self) -> Tensor:
        """The weight the layer multiplies with. Reading it does not advance a parametrisation's own state:
        spectral_norm takes a power-iteration step at each read in training mode, so it is read in eval mode."""
        if not self.is_parametrised:
            return getattr(self.module, self.attribute)
        parametrisation = self._parametrisation
        modes = [(module, module.training) for module in parametrisation.modules()]
        parametrisation.eval()
        try:
            return getattr(self.module, self.attribute)
        finally:
            for module, training in modes:
                module.training = training

    def matrices(self, weight: Tensor) -> list[Tensor]:
        """The matrices stacked in the (effective) weight."""
        return [as_matrix(part) for part in weight.chunk(len(self.parts))]

    def pull_back(self, weight: Tensor, gradient: Tensor) -> list[Tensor]:
        """A gradient in the effective weight as gradients in `parameters`: the chain rule."""
        if not self.is_parametrised:
            return [gradient]
        pulled = torch.autograd.grad(weight, self.parameters, gradient, allow_unused=True)
        return [torch.zeros_like(p) if g is None else g for p, g in zip(self.parameters, pulled, strict=True)]


@dataclass(frozen=True)
class Layer:
    """One regularised matrix: part `index` of a weight."""

    name: str
    weight: Weight
    index: int
    shape: tuple[int, int]

    def matrix(self) -> Tensor:
        """The effective matrix, detached."""
        with torch.no_grad():
            return self.weight.matrices(self.weight.effective())[self.index].detach()


def find_layers(model: nn.Module, rule: LayerRule) -> list[Layer]:
    """The layers of a model in the order of its modules; a shared weight counts once."""
    layers: list[Layer] = []
    seen: set[int] = set()
    for weight in _weights(model):
        with torch.no_grad():
            tensor = weight.effective()
        if any(id(p) in seen for p in weight.parameters) or not weight.parameters:
            continue
        found = [
            Layer(weight.name + part, weight, index, (matrix.shape[0], matrix.shape[1]))
            for index, (part, matrix) in enumerate(zip(weight.parts, weight.matrices(tensor), strict=True))
            if rule.admits(weight.name + part, weight.module, matrix)
        ]
        if found:
            seen.update(id(p) for p in weight.parameters)
        layers += found
    return layers


def unique_weights(layers: list[Layer]) -> list[Weight]:
    """The weights behind the layers, each once: a fused one holds several layers."""
    return list({id(layer.weight): layer.weight for layer in layers}.values())


def _weights(model: nn.Module) -> Iterator[Weight]:
    """Every trainable tensor with at least two dimensions, as its module sees it."""
    for prefix, module in model.named_modules():
        if isinstance(module, parametrize.ParametrizationList) or ".parametrizations." in f".{prefix}.":
            continue
        names = [name for name, p in module.named_parameters(recurse=False) if p.requires_grad]
        if parametrize.is_parametrized(module):
            names += list(module.parametrizations)
        for name in names:
            fused = name == "in_proj_weight"  # torch's attention: q, k and v of equal width, stacked
            weight = Weight(
                name=f"{prefix}.{name}" if prefix else name,
                module=module,
                attribute=name,
                parts=(".q", ".k", ".v") if fused else ("",),
            )
            with torch.no_grad():
                if weight.effective().ndim >= 2:
                    yield weight
