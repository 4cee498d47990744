"""The global clip, last before the optimiser."""

from collections.abc import Sequence

from torch import Tensor, nn


def clip_(parameters: Sequence[nn.Parameter], max_norm: float) -> Tensor:
    """The norm of all gradients as it was, and the gradients as `clip_grad_norm_` leaves them, bit for bit.

    That multiplies them by 1 where nothing is to be clipped, so as not to ask a GPU for the norm. On a CPU asking is
    free, and the multiplication a pass over all gradients.
    """
    norm = nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
    if norm.device.type != "cpu" or not norm + 1e-6 <= max_norm:  # as torch has it; and NaN is to spread
        nn.utils.clip_grads_with_norm_(parameters, max_norm, norm)
    return norm
