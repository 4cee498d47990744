"""A stream of tasks: MNIST with its pixels in a new order for each."""

from dataclasses import dataclass, fields

from torch import Tensor

from cmr_runner.checks import integer
from cmr_runner.data.arguments import Root
from cmr_runner.data.batches import permutation
from cmr_runner.data.dataset import Dataset
from cmr_runner.data.mnist import mnist


@dataclass(frozen=True)
class PermutedTasks(Dataset):
    """Each task lasts `epochs_per_task` epochs and is tested on its own order of the pixels."""

    seed: int = 0
    epochs_per_task: int = 1

    def task(self, epoch: int) -> int:
        """The task of an epoch, from 0. Epoch 0, before training, already sees the first."""
        return max(epoch - 1, 0) // self.epochs_per_task

    def at_epoch(self, epoch: int) -> Dataset:
        # The third number keeps it apart from the order of an epoch's examples.
        order = permutation(self.train_x[0].numel(), self.seed, self.task(epoch), 1).to(self.train_x.device)

        def permuted(x: Tensor) -> Tensor:
            return x.flatten(1)[:, order].reshape(x.shape)

        parts = {field.name: getattr(self, field.name) for field in fields(Dataset)}
        changed = {name: permuted(x) for name, x in parts.items() if name.endswith("_x") and x is not None}
        return Dataset(**(parts | changed | {"columns": {"task": self.task(epoch)}}))


def permuted_mnist(
    root: Root = None,
    epochs_per_task: int = 1,
    validation: int = 0,
    train_limit: int | None = None,
    test_limit: int | None = None,
    *,
    seed: int = 0,
) -> PermutedTasks:
    """MNIST, its pixels permuted anew for each task by (seed, task)."""
    integer("epochs_per_task", epochs_per_task, least=1)
    data = mnist(root, validation=validation, train_limit=train_limit, test_limit=test_limit)
    parts = {field.name: getattr(data, field.name) for field in fields(Dataset)} | {"name": "permuted_mnist"}
    return PermutedTasks(**parts, seed=seed, epochs_per_task=epochs_per_task)
