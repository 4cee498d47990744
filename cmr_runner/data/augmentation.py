"""Random crops and flips of a batch of images, all at once."""

import torch
from torch import Generator, Tensor
from torch.nn.functional import pad

from cmr_runner.data.dataset import Augmentation


def crop_and_flip(padding: int = 4) -> Augmentation:
    """Zeros around the image, a window of its own size at a random place, mirrored half of the time."""

    def draw(count: int, generator: Generator) -> Tensor:
        """(count, 3): the window's top and left, 0 … 2 · padding, and whether it is mirrored."""
        corner = torch.randint(2 * padding + 1, (count, 2), generator=generator)
        return torch.cat([corner, torch.randint(2, (count, 1), generator=generator)], 1)

    def change(x: Tensor, drawn: Tensor) -> Tensor:
        n, channels, height, width = x.shape
        top, left, mirrored = drawn.to(x.device).T[:, :, None]  # (n, 1) each
        rows = top + torch.arange(height, device=x.device)  # (n, height)
        along = torch.arange(width, device=x.device).expand(n, width)
        columns = left + torch.where(mirrored.bool(), width - 1 - along, along)  # (n, width)
        image = torch.arange(n, device=x.device)[:, None, None, None]
        channel = torch.arange(channels, device=x.device)[:, None, None]
        return pad(x, [padding] * 4)[image, channel, rows[:, None, :, None], columns[:, None, None, :]]

    return Augmentation(draw, change)
