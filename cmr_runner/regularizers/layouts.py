"""How a weight tensor holds its matrices: one, or several fused into it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor, nn

from cmr_runner.checks import ArgumentError
from cmr_runner.spectral import as_matrix

Rows = slice | Tensor
Part = tuple[str, Rows]

WHOLE = slice(None)
# Attributes in which attention modules keep the width of a head, and the number of heads.
_HEAD_WIDTH = ("head_dim", "attention_head_size", "dim_head")
_HEAD_COUNT = ("num_heads", "num_attention_heads", "n_heads")
_ONE_PROJECTION = re.compile(r"(to_)?[qkv](_proj|_lin)?|query|key|value|[qkv]_proj_weight")
_GATES = {4: (".i", ".f", ".g", ".o"), 3: (".r", ".z", ".n")}  # of torch's LSTM and GRU, in the order of their rows


@dataclass(frozen=True)
class Layout:
    """The parts of a weight: their suffixes and the rows that hold them, of the weight as a matrix out × rest.

    transposed: the tensor is in × out, as Hugging Face's Conv1D keeps it.
    """

    parts: tuple[Part, ...] = (("", WHOLE),)
    transposed: bool = False

    @property
    def suffixes(self) -> tuple[str, ...]:
        return tuple(suffix for suffix, _ in self.parts)

    def shapes(self, weight: Tensor) -> list[tuple[int, int]]:
        """(m, n) of each matrix."""
        first, *rest = weight.shape
        m, n = (rest[0], first) if self.transposed else (first, math.prod(rest))
        return [(len(range(*rows.indices(m))) if isinstance(rows, slice) else len(rows), n) for _, rows in self.parts]

    def matrix(self, weight: Tensor, index: int) -> Tensor:
        """Matrix `index` (m, n) in the tensor."""
        M, rows = self._whole(weight), self.parts[index][1]
        return M if rows is WHOLE else M[rows]

    def matrices(self, weight: Tensor) -> list[Tensor]:
        """The matrices in the tensor; `assembled` is the inverse."""
        return [self.matrix(weight, index) for index in range(len(self.parts))]

    def _whole(self, weight: Tensor) -> Tensor:
        return weight.mT if self.transposed else as_matrix(weight)

    def assembled(self, matrices: Sequence[Tensor], like: Tensor) -> Tensor:
        """The tensor of `like`'s shape that holds these matrices."""
        if len(self.parts) == 1:
            M = matrices[0]
        else:
            n = like.shape[0] if self.transposed else like[0].numel()
            M = matrices[0].new_empty(like.numel() // n, n)
            for (_, rows), part in zip(self.parts, matrices, strict=True):
                M[rows] = part
        return (M.mT if self.transposed else M).reshape(like.shape)


WHOLE_WEIGHT = Layout()


def layout_of(
    module: nn.Module,
    parent: nn.Module | None,
    path: str,
    shape: tuple[int, ...],
    *,
    parts: int | Sequence[int] | None = None,
    heads: int | bool = False,
) -> Layout:
    """The layout of the weight at `path` (`blocks.0.attn.qkv.weight`) of a module.

    parts: the number of equal parts, or the rows of each, instead of the built-in rule (1: the weight as a whole).
    heads: the number of heads in each part; True takes the attention module's own number, and leaves weights alone that
    are not q, k or v.
    """
    *_, owner, attribute = ["", *path.split(".")]
    transposed = is_transposed(module, owner, attribute, shape)
    m = shape[-1] if transposed else shape[0]
    columns = shape[0] if transposed else shape[1]
    found = _given(parts, m, path) if parts is not None else _fused(module, parent, owner, attribute, m, columns)
    by_part: list[Part] = found or [("", WHOLE)]
    if heads:
        projections = bool(_ONE_PROJECTION.fullmatch(owner) or _ONE_PROJECTION.fullmatch(attribute)) or (
            bool(found) and found[-1][0] in (".v", ".k")
        )
        by_part = list(_by_head(by_part, m, heads, [module, parent], projections, path))
    return Layout(tuple(by_part), transposed)


def is_transposed(module: nn.Module, owner: str, attribute: str, shape: tuple[int, ...]) -> bool:
    """Whether a tensor is in × out: Hugging Face's Conv1D, known by its class, or by name in a saved state_dict."""
    if len(shape) != 2 or attribute != "weight":
        return False
    return any(cls.__name__ == "Conv1D" for cls in type(module).__mro__) or (owner == "c_attn" and shape[1] > shape[0])


def _given(parts: int | Sequence[int], m: int, path: str) -> list[Part]:
    if isinstance(parts, int):
        if m % parts:
            raise ArgumentError("layers", f"layers.split must divide the {m} rows of {path}, got {parts}")
        sizes = [m // parts] * parts
    else:
        sizes = list(parts)
        if sum(sizes) != m:
            raise ArgumentError("layers", f"layers.split must add up to the {m} rows of {path}, got {sizes}")
    return [] if len(sizes) == 1 else _stacked([f".{i}" for i in range(len(sizes))], sizes)


def _fused(module: nn.Module, parent: nn.Module | None, owner: str, attribute: str, m: int, columns: int) -> list[Part]:
    """The parts by the built-in rules; none for a weight that holds one matrix."""
    if attribute == "in_proj_weight":
        return _equal([".q", ".k", ".v"], m)
    if re.fullmatch(r"weight_[ih]h(_l\d+(_reverse)?)?", attribute):
        return _gates(module, attribute, m)
    groups = getattr(module, "groups", 1)
    if isinstance(module, nn.modules.conv._ConvNd) and groups > 1:
        return _equal([f".g{i}" for i in range(groups)], m)
    if attribute != "weight":
        return []
    if owner in ("qkv", "to_qkv", "Wqkv", "c_attn", "kv", "to_kv") and m == 2 * columns:
        return _equal([".k", ".v"], m)
    if owner == "qk" and m == 2 * columns:
        return _equal([".q", ".k"], m)
    if owner in ("qkv", "to_qkv", "Wqkv", "c_attn") and (m == 3 * columns or (owner == "qkv" and m % 3 == 0)):
        if getattr(parent, "head_first", False):  # timm's MaxxViT: q, k and v of one head, then those of the next
            rows = torch.arange(m, device="cpu").view(parent.num_heads, 3, -1)  # type: ignore[union-attr,arg-type]
            return [(name, rows[:, i].flatten()) for i, name in enumerate((".q", ".k", ".v"))]
        return _equal([".q", ".k", ".v"], m)
    return []


def _gates(module: nn.Module, attribute: str, m: int) -> list[Part]:
    """The gates of an LSTM or GRU: as many as the hidden width goes into the rows; an RNN has none."""
    recurrent = getattr(module, attribute.replace("_ih", "_hh"))
    hidden = getattr(module, "hidden_size", recurrent.shape[-1])
    return _equal(_GATES[m // hidden], m) if m // hidden in _GATES else []


def _by_head(
    parts: list[Part],
    m: int,
    heads: int | bool,
    owners: list[nn.Module | None],
    projections: bool,
    path: str,
) -> Iterator[Part]:
    width = _attribute(owners, _HEAD_WIDTH) if heads is True else None
    fixed = _attribute(owners, _HEAD_COUNT) if heads is True else int(heads)
    if heads is True and (not projections or (width is None and fixed is None)):
        yield from parts
        return
    for suffix, rows in parts:
        of_part = torch.arange(m, device="cpu")[rows]
        if width is not None and not 1 <= width <= len(of_part):
            raise ArgumentError(
                "layers", f"layers.heads must fit the {len(of_part)} rows of {path}{suffix}, got heads of {width} rows"
            )
        # By width first: with grouped queries k and v have fewer heads than q.
        count = len(of_part) // width if width is not None else fixed or 1
        if len(of_part) % count:
            raise ArgumentError(
                "layers", f"layers.heads must divide the {len(of_part)} rows of {path}{suffix}, got {count}"
            )
        for i, of_head in enumerate(of_part.chunk(count)):
            contiguous = int(of_head[-1]) - int(of_head[0]) + 1 == len(of_head)
            yield f"{suffix}.h{i}", slice(int(of_head[0]), int(of_head[-1]) + 1) if contiguous else of_head


def _attribute(owners: list[nn.Module | None], names: Sequence[str]) -> int | None:
    """The first of these attributes that one of the modules has."""
    values = (getattr(owner, name, None) for owner in owners for name in names)
    return next((value for value in values if isinstance(value, int)), None)


def _equal(names: Sequence[str], m: int) -> list[Part]:
    return _stacked(names, [m // len(names)] * len(names))


def _stacked(names: Sequence[str], sizes: Sequence[int]) -> list[Part]:
    return [(name, slice(end - size, end)) for name, size, end in zip(names, sizes, accumulate(sizes), strict=True)]


def check_split(split: object) -> None:
    """`split` of a LayerRule: name patterns, each with a number of parts or the rows of each; None for no patterns."""
    if split is None:
        return
    if not isinstance(split, Mapping):
        raise ArgumentError("split", f"split must map name patterns to numbers of parts, got {split!r}")
    for pattern, parts in split.items():
        sizes = [parts] if isinstance(parts, int) else parts
        whole = isinstance(sizes, Sequence) and all(type(size) is int and size >= 1 for size in sizes)
        if not whole or not sizes:
            allowed = "a number of parts >= 1 or the rows of each"
            raise ArgumentError("split", f"split[{pattern!r}] must be {allowed}, got {parts!r}")


def check_heads(heads: object) -> None:
    """`heads` of a LayerRule: a flag, or name patterns with numbers of heads."""
    if isinstance(heads, bool):
        return
    if not isinstance(heads, Mapping):
        allowed = "true, false or a map of name patterns to numbers of heads"
        raise ArgumentError("heads", f"heads must be {allowed}, got {heads!r}")
    for pattern, count in heads.items():
        if type(count) is not int or count < 1:
            raise ArgumentError("heads", f"heads[{pattern!r}] must be an integer >= 1, got {count!r}")
