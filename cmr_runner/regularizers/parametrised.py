"""Putting a parametrisation on the weights that a layer rule admits."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from cmr_runner.regularizers.layers import LayerRule, Weight, find_layers, unique_weights


def parametrise_(model: nn.Module, rule: LayerRule | None, seed: int, put: Callable[[Weight], object]) -> None:
    """put(weight) for every admitted weight, with torch's global generators seeded, and as they were afterwards."""
    weights = unique_weights(find_layers(model, rule if rule is not None else LayerRule()))
    if not weights:
        raise ValueError(f"regularizer.layers must be a rule that admits at least one weight, got {rule}")
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        for weight in weights:
            if weight.is_parametrised:
                raise ValueError(f"regularizer: {weight.name} is parametrised already")
            put(weight)
