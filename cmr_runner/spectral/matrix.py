"""From a weight to the matrix whose spectrum is meant."""

from torch import Tensor


def as_matrix(weight: Tensor) -> Tensor:
    """The weight as a matrix, out × everything else: (m, n) as it is, (out, in, kh, kw) -> (out, in·kh·kw).

    A view wherever torch can give one. Vectors, scalars and weights without entries have no spectrum and are refused.
    """
    if weight.ndim < 2:
        raise ValueError(f"a weight needs at least 2 dimensions to have a spectrum, got shape {tuple(weight.shape)}")
    if weight.numel() == 0:
        raise ValueError(f"a weight needs entries to have a spectrum, got shape {tuple(weight.shape)}")
    return weight if weight.ndim == 2 else weight.flatten(1)
