"""The tensors of a model that an initialisation writes."""

from collections.abc import Iterator

from torch import Tensor, nn

_WITH_MATRIX = (nn.Linear, nn.modules.conv._ConvNd)


def matrices_of(model: nn.Module) -> Iterator[Tensor]:
    """The weights of linear and convolutional layers, in the order of the modules."""
    for module in model.modules():
        if isinstance(module, _WITH_MATRIX):
            yield module.weight


def zero_biases_(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, _WITH_MATRIX) and module.bias is not None:
            nn.init.zeros_(module.bias)
