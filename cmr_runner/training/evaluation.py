"""Loss and accuracy of a model, the same for classes and for next tokens."""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

BATCH = 2000  # large enough that the products are efficient, small enough for any memory
SMALL_BATCH = 250  # of large images and of text


def summed_loss(logits: Tensor, y: Tensor) -> Tensor:
    """Cross-entropy, summed over labels (B,) or (B, T), of logits (B, classes) or (B, T, classes); in float32."""
    return cross_entropy(logits.flatten(0, -2).float(), y.flatten(), reduction="sum")


@torch.no_grad()
def evaluate(model: nn.Module, x: Tensor, y: Tensor) -> tuple[float, float]:
    """(mean cross-entropy, accuracy in [0, 1]) over all labels; the model's mode is left as it was."""
    was_training = model.training
    model.eval()
    loss = torch.zeros((), dtype=torch.float64, device=x.device)
    correct = torch.zeros((), dtype=torch.int64, device=x.device)
    batch = BATCH if y.ndim == 1 and x[0].numel() <= 1024 else SMALL_BATCH
    for xs, ys in zip(x.split(batch), y.split(batch), strict=True):
        logits = model(xs)
        loss += summed_loss(logits, ys)
        correct += (logits.argmax(-1) == ys).sum()
    model.train(was_training)
    return float(loss) / y.numel(), int(correct) / y.numel()
