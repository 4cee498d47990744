"""Which weights of a model are regularised, why the others are not, and how their effective values are read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter
from torch.nn.utils import parametrize

from cmr_runner import checks
from cmr_runner.checks import ArgumentError
from cmr_runner.regularizers.layouts import WHOLE_WEIGHT, Layout, check_heads, check_split, layout_of

_NORMS = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.LocalResponseNorm)
_EMBEDDINGS = (nn.Embedding, nn.EmbeddingBag)
# What DDP, torch.compile, FSDP and activation checkpointing put into a name.
_WRAPPERS = ("module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")


@dataclass(frozen=True)
class LayerRule:
    """Which weights count as layers, and how fused ones are split.

    include, exclude: name patterns with * and ?, as `layers.*.weight` or `*head*`; include empty means all. The
    prefixes of wrappers (`module.`, `_orig_mod.`, `_fsdp_wrapped_module.`) need not be in them.
    types: class names of modules, as `Linear` or `Conv2d`; empty means all but norms, embeddings, LoRA's factors, and
    parameters that are no layer's weight. A weight that is tied to an embedding is left out in either case.
    min_side: the smallest min(rows, columns) allowed; a matrix with a side of 1 has one singular value, so κ = 1.
    split: {name pattern: parts} for fused weights, instead of the built-in rules: the number of equal parts along the
    output side, or the rows of each part; 1 keeps a weight whole.
    heads: True for one matrix per attention head of q, k and v, if the module says how many heads it has; or
    {name pattern: number of heads}.
    """

    include: Sequence[str] = ()
    exclude: Sequence[str] = ()
    types: Sequence[str] = ()
    min_side: int = 2
    split: Mapping[str, int | Sequence[int]] | None = None
    heads: bool | Mapping[str, int] = False

    def __post_init__(self) -> None:
        for key in ("include", "exclude", "types"):
            value = getattr(self, key)
            checks.require(key, value, not isinstance(value, str), "a list of patterns, not one string")
        checks.integer("min_side", self.min_side, least=1)
        check_split(self.split)
        check_heads(self.heads)

    def layout(self, module: nn.Module, parent: nn.Module | None, name: str, shape: tuple[int, ...]) -> Layout:
        parts = next((parts for pattern, parts in (self.split or {}).items() if matches(name, [pattern])), None)
        heads: bool | int
        if isinstance(self.heads, bool):
            heads = self.heads
        else:
            heads = next((count for pattern, count in self.heads.items() if matches(name, [pattern])), False)
        return layout_of(module, parent, name, shape, parts=parts, heads=heads)

    def reason_against(self, name: str, shape: tuple[int, int]) -> str:
        """Why a matrix of a layer's weight is left out; empty if it is not."""
        if min(shape) < self.min_side:
            return f"short side {min(shape)} < min_side {self.min_side}"
        if self.include and not matches(name, self.include):
            return "not in include"
        return "in exclude" if matches(name, self.exclude) else ""

    def reason_against_kind(self, weight: Weight) -> str:
        """Why a weight does not count as a layer's, whatever its name; empty if it may."""
        if self.types:
            # By ancestry: a parametrised Linear is a ParametrizedLinear, a subclass of Linear.
            named = {cls.__name__ for cls in type(weight.module).__mro__} & set(self.types)
            return "" if named else f"{type(weight.module).__name__} is not in types"
        if isinstance(weight.module, _NORMS):
            return "norm"
        if isinstance(weight.module, _EMBEDDINGS):
            return "embedding"
        if any(part.startswith("lora_") for part in weight.name.split(".")):
            return "LoRA factor"
        return "" if "weight" in weight.attribute else "bare parameter, no layer's weight"


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether a name, with or without the prefixes of wrappers, matches one of the patterns."""
    bare = ".".join(part for part in name.split(".") if part not in _WRAPPERS)
    return any(fnmatchcase(name, pattern) or fnmatchcase(bare, pattern) for pattern in patterns)


@dataclass(frozen=True)
class Weight:
    """One weight tensor of a module, plain or parametrised, holding one matrix or several fused ones."""

    name: str
    module: nn.Module = field(repr=False)
    attribute: str
    layout: Layout = WHOLE_WEIGHT

    @property
    def parts(self) -> tuple[str, ...]:
        """The suffixes of its matrices: `.q`, `.k`, `.v` of a fused projection, one empty suffix of a plain weight."""
        return self.layout.suffixes

    @property
    def is_parametrised(self) -> bool:
        # As torch's is_parametrized, without its look-up through Module.__getattr__: asked a hundred times per step.
        parametrisations = self.module._modules.get("parametrizations")
        return parametrisations is not None and self.attribute in parametrisations  # type: ignore[operator]

    @property
    def behind(self) -> list[nn.Parameter]:
        """The parameters behind the weight, frozen or not: itself, or the originals of its parametrisation."""
        return (
            list(self._parametrisation.parameters()) if self.is_parametrised else [getattr(self.module, self.attribute)]
        )

    @property
    def parameters(self) -> list[nn.Parameter]:
        """Those behind the weight that train now; none if it is frozen."""
        return [p for p in self.behind if p.requires_grad]

    def belongs_to(self, model: nn.Module) -> bool:
        """Whether the model still has this module in its place."""
        module: nn.Module | None = model
        for part in self.name.split(".")[:-1]:
            module = module._modules.get(part) if module is not None else None
        return module is self.module

    @property
    def _parametrisation(self) -> parametrize.ParametrizationList:
        return self.module.parametrizations[self.attribute]  # type: ignore[index,return-value]

    def effective(self) -> Tensor:
        """The weight that the layer multiplies by. Reading it does not change the state of a parametrisation:
        spectral_norm does a power iteration at each read in training mode, so it is read in eval mode."""
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
        """The matrices (m, n) in the (effective) weight."""
        return self.layout.matrices(weight)

    def matrix(self, weight: Tensor, index: int) -> Tensor:
        """One of them."""
        return self.layout.matrix(weight, index)

    def assembled(self, matrices: Sequence[Tensor], like: Tensor) -> Tensor:
        """The inverse of `matrices`: gradients of the matrices as one gradient of the weight's shape."""
        return self.layout.assembled(matrices, like)

    def pull_back(self, weight: Tensor, gradient: Tensor) -> list[Tensor]:
        """A gradient in the effective weight as gradients in `parameters`: the chain rule."""
        parameters = self.parameters
        if not self.is_parametrised:
            return [gradient] if parameters else []
        if not parameters:
            return []
        pulled = torch.autograd.grad(weight, parameters, gradient, allow_unused=True)
        return [torch.zeros_like(p) if g is None else g for p, g in zip(parameters, pulled, strict=True)]


@dataclass(frozen=True)
class Layer:
    """One matrix: part `index` of a weight. `left_out` is the reason why it is not regularised; empty if it is."""

    name: str
    weight: Weight
    index: int
    shape: tuple[int, int]
    left_out: str = ""

    @property
    def frozen(self) -> bool:
        """Whether nothing behind it trains now."""
        return not self.weight.parameters

    def matrix(self) -> Tensor:
        """The effective matrix, detached. Of a weight that processes hold in pieces (FSDP2) this is collective."""
        with torch.no_grad():
            tensor = self.weight.effective()
            whole = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
            return self.weight.matrix(whole, self.index).detach()


def find_layers(model: nn.Module, rule: LayerRule) -> list[Layer]:
    """The layers of a model in the order of its modules, frozen ones too; a shared weight counts once."""
    return [layer for layer in all_matrices(model, rule) if not layer.left_out]


def require_layers(model: nn.Module, rule: LayerRule) -> list[Layer]:
    """`find_layers`, or an error that says why each weight was left out."""
    matrices = all_matrices(model, rule)
    layers = [layer for layer in matrices if not layer.left_out]
    if not layers:
        why = reasons_left_out(matrices) or "the model has no weight with at least two dimensions"
        raise ArgumentError("layers", f"layers: no layer to regularise: {why}")
    return layers


def all_matrices(model: nn.Module, rule: LayerRule) -> list[Layer]:
    """Every matrix of a model in the order of its modules: the layers, and those left out, with the reason."""
    checks.require("model", model, isinstance(model, nn.Module), "a torch.nn.Module")
    checks.require("layers", rule, isinstance(rule, LayerRule), "a LayerRule, as LayerRule(exclude=[...])")
    _refuse_deepspeed(model)
    embeddings = {
        id(p): f"{prefix}.{name}".lstrip(".")
        for prefix, module in model.named_modules()
        if isinstance(module, _EMBEDDINGS)
        for name, p in module.named_parameters(recurse=False)
    }
    found: list[Layer] = []
    owner: dict[int, str] = {}  # which layer's weight holds a parameter
    for weight, tensor in _weights(model, rule):
        shared = next((owner[id(p)] for p in weight.behind if id(p) in owner), "")
        tied = next((embeddings[id(p)] for p in weight.behind if id(p) in embeddings), "")
        against = rule.reason_against_kind(weight)
        if shared:
            against = f"the same parameter as {shared}"
        elif tied and not isinstance(weight.module, _EMBEDDINGS):
            against = f"tied to the embedding {tied}"
        elif not tensor.is_floating_point():
            against = f"{str(tensor.dtype).removeprefix('torch.')}, not floating point"
        of_weight = [
            Layer(weight.name + suffix, weight, i, shape, against or rule.reason_against(weight.name + suffix, shape))
            for i, (suffix, shape) in enumerate(zip(weight.parts, weight.layout.shapes(tensor), strict=True))
        ]
        if all(layer.left_out for layer in of_weight):  # one entry: a depthwise convolution has hundreds of groups
            found.append(replace(of_weight[0], name=weight.name))
        else:
            found += of_weight
            owner |= {id(p): weight.name for p in weight.behind}
    return found


def unique_weights(layers: list[Layer]) -> list[Weight]:
    """The weights behind the layers, each once: a fused one holds several layers."""
    return list({id(layer.weight): layer.weight for layer in layers}.values())


def _weights(model: nn.Module, rule: LayerRule) -> Iterator[tuple[Weight, Tensor]]:
    """Every non-empty tensor of at least two dimensions, as its module sees it, and its effective value."""
    modules = dict(model.named_modules())
    for prefix, module in modules.items():
        if isinstance(module, parametrize.ParametrizationList) or ".parametrizations." in f".{prefix}.":
            continue
        names = [name for name, _ in module.named_parameters(recurse=False)]
        if parametrize.is_parametrized(module):
            names += list(module.parametrizations)
        for attribute in names:
            name = f"{prefix}.{attribute}" if prefix else attribute
            whole = Weight(name, module, attribute)
            if any(isinstance(p, UninitializedParameter) for p in whole.behind):
                raise ArgumentError("model", f"model has no shape for {name} yet: run one forward first")
            with torch.no_grad():
                tensor = whole.effective()
            if tensor.ndim >= 2 and tensor.numel():
                parent = modules.get(prefix.rpartition(".")[0]) if prefix else None
                layout = rule.layout(module, parent, name, tuple(tensor.shape))
                yield Weight(name, module, attribute, layout), tensor


def reasons_left_out(matrices: list[Layer]) -> str:
    """`4 weights were left out because: embedding (a.weight); norm (b.weight, …)`; empty if none was."""
    by_reason: dict[str, list[str]] = {}
    for matrix in matrices:
        if matrix.left_out:
            by_reason.setdefault(matrix.left_out, []).append(matrix.name)
    if not by_reason:
        return ""
    reasons = [
        f"{reason} ({', '.join(names[:3])}{', …' if len(names) > 3 else ''})" for reason, names in by_reason.items()
    ]
    count = sum(map(len, by_reason.values()))
    were = "weight was" if count == 1 else "weights were"
    return f"{count} {were} left out because: {'; '.join(reasons)}"


def _refuse_deepspeed(model: nn.Module) -> None:
    partitioned = any(hasattr(p, "ds_id") for p in model.parameters())
    if partitioned or type(model).__module__.partition(".")[0] == "deepspeed":
        raise ArgumentError(
            "model", "model is trained by DeepSpeed, which is not supported: its gradients are not in .grad at the step"
        )
