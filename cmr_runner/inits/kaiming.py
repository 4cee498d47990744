"""He et al.'s normal initialisation."""

from typing import Literal, get_args

from torch import Generator, nn

from cmr_runner.checks import one_of
from cmr_runner.inits.weights import matrices_of, zero_biases_

Mode = Literal["fan_in", "fan_out"]
NONLINEARITIES = (
    "relu",
    "tanh",
    "leaky_relu",
    "selu",
    "sigmoid",
    "linear",
    "conv1d",
    "conv2d",
    "conv3d",
)  # torch's gains


def kaiming_normal_(
    model: nn.Module, generator: Generator, *, nonlinearity: str = "relu", mode: Mode = "fan_in"
) -> None:
    """N(0, g²/fan) with torch's gain g of the nonlinearity; biases zero."""
    one_of("mode", mode, get_args(Mode))
    one_of("nonlinearity", nonlinearity, NONLINEARITIES)
    for weight in matrices_of(model):
        nn.init.kaiming_normal_(weight, mode=mode, nonlinearity=nonlinearity, generator=generator)  # type: ignore[arg-type]
    zero_biases_(model)
