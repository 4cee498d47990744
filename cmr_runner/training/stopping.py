"""When a run is given up early: after an epoch that crosses a bound, or too long after the last better one."""

from __future__ import annotations

from typing import Any

from cmr_runner import checks
from cmr_runner.training.metrics import Row

VALIDATION = "val_accuracy"


class StopWhen:
    """`patience`: so many epochs in a row without a better validation accuracy. `kappa`: mean κ over the layers above
    it. `loss`: training loss above it. None: not for this reason. What was there before training counts as the first
    validation accuracy; the bounds hold from epoch 1 on."""

    def __init__(self, patience: int | None = None, kappa: float | None = None, loss: float | None = None) -> None:
        if patience is not None:
            checks.integer("patience", patience, least=1)
        if kappa is not None:
            checks.number("kappa", kappa, least=1)
        if loss is not None:
            checks.number("loss", loss, above=0)
        self.patience, self.kappa, self.loss = patience, kappa, loss
        self._best = -1.0
        self._best_epoch = 0

    def reason(self, metrics: Row) -> str | None:
        """Why training ends with this epoch, None if it goes on. To be asked once for each epoch, in order."""
        epoch = metrics["epoch"]
        accuracy = metrics.get(VALIDATION)
        if accuracy is not None and accuracy > self._best:
            self._best, self._best_epoch = accuracy, epoch
        if epoch == 0:
            return None
        for name, column, bound in (("mean κ", "kappa_mean", self.kappa), ("training loss", "train_loss", self.loss)):
            value = metrics.get(column)
            if bound is not None and value is not None and value > bound:
                return f"stopped after epoch {epoch}: {name}, {value:.4g}, is over {bound:g}"
        if self.patience is not None and epoch - self._best_epoch >= self.patience:
            best = f"{100 * self._best:.2f} % in epoch {self._best_epoch}"
            return f"stopped after epoch {epoch}: no better validation accuracy than {best}"
        return None

    def state_dict(self) -> dict[str, Any]:
        return {"best": self._best, "best_epoch": self._best_epoch}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._best, self._best_epoch = state["best"], state["best_epoch"]
