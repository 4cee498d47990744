"""Loss and accuracy on the test set."""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

BATCH = 2000  # large enough that the products are efficient, small enough for any memory


@torch.no_grad()
def evaluate(model: nn.Module, x: Tensor, y: Tensor) -> tuple[float, float]:
    """(mean cross-entropy, accuracy in [0, 1]) over all examples; the model's mode is left as it was."""
    was_training = model.training
    model.eval()
    loss = torch.zeros((), dtype=torch.float64, device=x.device)
    correct = torch.zeros((), dtype=torch.int64, device=x.device)
    for xs, ys in zip(x.split(BATCH), y.split(BATCH), strict=True):
        logits = model(xs)
        loss += cross_entropy(logits, ys, reduction="sum")
        correct += (logits.argmax(1) == ys).sum()
    model.train(was_training)
    return float(loss) / len(y), int(correct) / len(y)
