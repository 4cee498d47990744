"""The tensors of a model that an initialisation writes."""

from collections.abc import Iterator

from torch import Tensor, nn

from cmr_runner.checks import number

_WITH_MATRIX = (nn.Linear, nn.modules.conv._ConvNd)


def matrices_of(model: nn.Module) -> Iterator[Tensor]:
    """The weights of linear, convolutional and attention layers in the order of the modules, to be written in place.

    A fused q, k, v weight comes as its three matrices. A head that is tied to an embedding is an embedding.
    """
    embeddings = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    for module in model.modules():
        if isinstance(module, _WITH_MATRIX):
            if id(module.weight) not in embeddings:
                yield module.weight
        elif isinstance(module, nn.MultiheadAttention) and module.in_proj_weight is not None:
            yield from module.in_proj_weight.chunk(3)


def zero_biases_(model: nn.Module) -> None:
    for module in model.modules():
        bias = module.in_proj_bias if isinstance(module, nn.MultiheadAttention) else getattr(module, "bias", None)
        if isinstance(module, (*_WITH_MATRIX, nn.MultiheadAttention)) and bias is not None:
            nn.init.zeros_(bias)


def factor(argument: str, value: float) -> float:
    """A factor of a weight's values: products of larger ones leave float32 at once."""
    return number(argument, value, above=0, most=1e6)
