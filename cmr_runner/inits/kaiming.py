"""He et al.'s normal initialisation."""

from typing import Literal

from torch import Generator, nn

from cmr_runner.inits.weights import matrices_of, zero_biases_

Mode = Literal["fan_in", "fan_out"]


def kaiming_normal_(
    model: nn.Module, generator: Generator, *, nonlinearity: str = "relu", mode: Mode = "fan_in"
) -> None:
    """N(0, g²/fan) with torch's gain g of the nonlinearity; biases zero."""
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"init.mode must be fan_in or fan_out, got {mode}")
    try:
        nn.init.calculate_gain(nonlinearity)  # type: ignore[arg-type]
    except ValueError:
        raise ValueError(
            f"init.nonlinearity must be one torch has a gain for, as relu or tanh, got {nonlinearity}"
        ) from None
    for weight in matrices_of(model):
        nn.init.kaiming_normal_(weight, mode=mode, nonlinearity=nonlinearity, generator=generator)  # type: ignore[arg-type]
    zero_biases_(model)
