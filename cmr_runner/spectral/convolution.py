"""The singular values of a convolution as the linear map of images that it is.

A kernel (out, in, kh, kw) flattened to out × (in · kh · kw) is what the penalty sees: the map of one patch to one
pixel. The whole map of a circular convolution with stride 1 on n × n images is block-circulant. The Fourier transform
makes it block-diagonal, one out × in matrix per frequency (Sedghi, Gupta and Long, 2019), so its singular values are
theirs.
"""

import torch
from torch import Tensor

from cmr_runner.checks import integer
from cmr_runner.spectral.decomposition import NonFiniteError


def operator_singular_values(kernel: Tensor, size: int) -> Tensor:
    """All min(out, in) · size² singular values on size × size images, descending, float64.

    Padding with zeros instead of circularly changes the rows at the image's edge alone.
    """
    integer("size", size, least=max(kernel.shape[-2:]))
    if not torch.isfinite(kernel).all():
        raise NonFiniteError("the kernel is not finite")
    frequencies = torch.fft.fft2(kernel.double(), (size, size)).movedim((-2, -1), (0, 1))  # (size, size, out, in)
    return torch.linalg.svdvals(frequencies).flatten().sort(descending=True).values
