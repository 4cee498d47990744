"""Small arrays in float64 on the host.

An engine has a few numbers per layer to work with between its products. At a dozen layers a torch operation costs ten
times what it computes, on a GPU more, so these numbers are numpy arrays.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Places = npt.NDArray[np.intp]


def array(values: Tensor) -> Array:
    """The values in float64; of float64 on the host no copy is made."""
    return values.double().cpu().numpy()


def tensor(values: Array | Mask, like: Tensor) -> Tensor:
    """The values where `like` is, in its dtype unless they are a mask."""
    made = torch.from_numpy(values)
    return made.to(like.device) if made.dtype == torch.bool else made.to(like)
