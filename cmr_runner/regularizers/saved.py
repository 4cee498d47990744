"""The layers of a state_dict, without the model it belongs to."""

from __future__ import annotations

from collections import defaultdict

from torch import Tensor, nn
from torch.nn.utils import parametrizations

from cmr_runner.spectral import as_matrix

_MARK = ".parametrizations."


def module_of(state: dict[str, Tensor], *, orthogonal_map: str = "cayley") -> nn.Module:
    """A module whose parameters are the effective weights of at least two dimensions, under their names.

    `spectral_norm` and `orthogonal` save the raw tensors behind a weight; the weight is computed from them again.
    A state_dict does not say which weight is an embedding: leave those out by name.
    """
    root = nn.Module()
    for name, weight in _effective(state, orthogonal_map).items():
        if weight.ndim >= 2 and weight.is_floating_point() and weight.numel():
            *path, leaf = name.split(".")
            owner = root
            for part in path:
                if part not in owner._modules:
                    owner.add_module(part, nn.Module())
                owner = owner.get_submodule(part)
            owner.register_parameter(leaf, nn.Parameter(weight))
    return root


def _effective(state: dict[str, Tensor], orthogonal_map: str) -> dict[str, Tensor]:
    weights: dict[str, Tensor] = {}
    behind: dict[str, dict[str, Tensor]] = defaultdict(dict)
    for name, tensor in state.items():
        owner, mark, rest = f".{name}".partition(_MARK)
        if not mark:
            weights[name] = tensor
            continue
        attribute, _, part = rest.partition(".")
        key = f"{owner}.{attribute}".lstrip(".")
        behind[key][part] = tensor
        weights.setdefault(key, tensor)  # keeps the order of the file
    return weights | {key: _parametrised(key, parts, orthogonal_map) for key, parts in behind.items()}


def _parametrised(name: str, parts: dict[str, Tensor], orthogonal_map: str) -> Tensor:
    if parts.keys() == {"original", "0._u", "0._v"}:
        W = parts["original"]
        return W / (parts["0._u"] @ as_matrix(W) @ parts["0._v"])
    if parts.keys() == {"original", "0.inner.base"}:
        made = nn.Module()
        made.weight = nn.Parameter(parts["original"].clone())
        parametrizations.orthogonal(made, "weight", orthogonal_map)
        made.load_state_dict(
            {
                "parametrizations.weight.original": parts["original"],
                "parametrizations.weight.0.base": parts["0.inner.base"],
            }
        )
        return made.weight.detach().flatten(0, -2)  # q, k, v are saved apart and stacked in the weight
    raise ValueError(f"{name} is behind a parametrisation that is not known here ({', '.join(sorted(parts))})")
