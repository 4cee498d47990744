"""Parametrises the weights that a layer rule selects."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from cmr_runner.checks import ArgumentError
from cmr_runner.regularizers.layers import LayerRule, Weight, require_layers, unique_weights


def parametrise_(model: nn.Module, rule: LayerRule | None, seed: int, put: Callable[[Weight], object]) -> None:
    """put(weight) for every selected weight that trains, with torch's global generators seeded, then put back."""
    layers = require_layers(model, rule if rule is not None else LayerRule())
    weights = [weight for weight in unique_weights(layers) if weight.parameters]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        for weight in weights:
            if weight.is_parametrised:
                raise ArgumentError("model", f"model: {weight.name} is parametrised already")
            put(weight)
