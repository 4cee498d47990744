"""The training loop. Plain objects in, one `Epoch` of rows out at a time."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import exp, isfinite, isnan, log
from typing import Any, Literal

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from cmr_runner import checks
from cmr_runner.data.batches import epoch_order
from cmr_runner.data.dataset import Dataset
from cmr_runner.distributed import Ranks
from cmr_runner.regularizers.base import PlanRow, Regularizer
from cmr_runner.runs.columns import in_column_order
from cmr_runner.spectral import NonFiniteError
from cmr_runner.training.clipping import clip_
from cmr_runner.training.diagnostics import Diagnostics, no_diagnostics
from cmr_runner.training.evaluation import evaluate, summed_loss
from cmr_runner.training.metrics import BEFORE_TRAINING, EpochTotals, Row, spectral_figures
from cmr_runner.training.schedules import constant
from cmr_runner.training.seeding import generator, mixed_seed
from cmr_runner.training.stopping import StopWhen

HOPELESS = 1e6  # times log(classes), the loss of a guess: a training loss above it counts as diverged
PRECISIONS = ("float32", "bf16")
LARGEST_EXPONENT = 700.0  # of a float64
CHECK_EVERY = 64  # steps between looks for NaN: often enough to stop early, rare enough to cost nothing


class Diverged(Exception):
    """Something that must be finite is not; the rows so far stand."""


class Stopped(Exception):
    """A rule of `stop_when` holds: the run ends here, and its rows stand."""


class Interrupted(Exception):
    """The run was asked to stop; it goes on from its last finished epoch."""


class OtherProcesses(Exception):
    """A state of several processes holds what each knew of its own layers, so it needs as many again."""


@dataclass(frozen=True)
class Epoch:
    """What one epoch left: a row of metrics.csv, its rows of layers.csv, and its rows of spectra.csv."""

    number: int
    metrics: Row
    layers: list[Row]
    spectra: list[Row]


@dataclass(frozen=True)
class StepView:
    """Where training is, for a progress display."""

    epoch: int
    step: int  # within the epoch, from 1
    steps: int  # in an epoch
    loss: torch.Tensor


class Trainer:
    """Trains a model on the cross-entropy of its logits, a regulariser beside.

    One step: forward, backward (g_task), regulariser (cap and mix), global clip, optimiser, schedule. Everything
    random in epoch e comes from (seed, e), so an epoch depends on the state before it and on nothing else.
    """

    def __init__(
        self,
        *,
        model: nn.Module,
        data: Dataset,
        regularizer: Regularizer,
        optimizer: Optimizer,
        schedule: LRScheduler | None = None,
        seed: int,
        epochs: int = 5,
        batch_size: int = 64,
        clip_norm: float = 5.0,
        diagnostics: bool = False,
        precision: Literal["float32", "bf16"] = "float32",
        stop_when: StopWhen | None = None,
        ranks: Ranks | None = None,
    ) -> None:
        checks.integer("epochs", epochs, least=1)
        checks.integer("batch_size", batch_size, least=1)
        checks.boolean("diagnostics", diagnostics)
        checks.number("clip_norm", clip_norm, above=0, finite=False)  # inf: no clip
        checks.one_of("precision", precision, PRECISIONS)
        self.model, self.data, self.regularizer, self.optimizer = model, data, regularizer, optimizer
        self.schedule = schedule if schedule is not None else constant(optimizer, 0)
        self.precision = precision
        self.seed, self.epochs, self.batch_size, self.clip_norm = seed, epochs, batch_size, clip_norm
        self.device = next(model.parameters()).device
        self.ranks = ranks if ranks is not None else Ranks()
        regularizer.divide_over(self.ranks)
        self.diagnose = Diagnostics(model, data) if diagnostics else no_diagnostics
        self.now = data  # what the epoch trains on and is tested on
        self.lr = optimizer.param_groups[0]["lr"]  # of the last step
        self.epoch = -1  # the last finished one; 0 is the state before training
        self.step = 0
        self.trouble: str | None = None  # what went bad in the last finished epoch
        self.stop_when = stop_when if stop_when is not None else StopWhen()
        if self.stop_when.patience is not None and data.val_y is None:
            raise checks.ArgumentError(
                "stop_when.patience",
                f"stop_when.patience={self.stop_when.patience} needs a validation part: set dataset.validation",
            )
        self.reason_to_stop: str | None = None  # by stop_when, after the last finished epoch

    @property
    def plan(self) -> list[PlanRow]:
        return self.regularizer.plan

    @property
    def steps_per_epoch(self) -> int:
        return steps_per_epoch(len(self.data.train_y), self.batch_size)

    def run(
        self, should_stop: Callable[[], bool] = lambda: False, on_step: Callable[[StepView], None] | None = None
    ) -> Iterator[Epoch]:
        """The epochs that are left: 0 (before training) unless resumed, then up to `epochs`. `state_dict` is whole
        whenever an epoch has been yielded. Raises Interrupted at the step after should_stop() turns true, Diverged
        after yielding the epoch in which a number went bad, Stopped after one that `stop_when` ends the run with."""
        # What the forward goes through: with several processes its backward averages the gradients over them.
        network = self.model if self.ranks.size == 1 else DistributedDataParallel(self.model)
        if self.epoch < 0:
            began = time.perf_counter()
            self.epoch = 0
            self.now = self.data.at_epoch(0)
            before = self._epoch(BEFORE_TRAINING, began, 0.0)
            self.stop_when.reason(before.metrics)
            yield before
        while not self.trouble and not self.reason_to_stop and self.epoch < self.epochs:
            began = time.perf_counter()
            totals = EpochTotals(self.device)
            self.trouble, spectral_seconds = self._train_epoch(network, self.epoch + 1, totals, should_stop, on_step)
            self.epoch += 1
            epoch = self._epoch(totals.means(), began, spectral_seconds)
            if self.trouble is None and not (isfinite(epoch.metrics["test_loss"]) and whole(epoch.layers)):
                self.trouble = f"epoch {self.epoch}: the test loss or a layer is not finite"
            if self.trouble is None and epoch.metrics["train_loss"] > HOPELESS * log(self.data.num_classes):
                loss = epoch.metrics["train_loss"]
                self.trouble = (
                    f"epoch {self.epoch}: the training loss, {loss:.3g}, is over {HOPELESS:g} times a guess's"
                )
            if self.epoch < self.epochs:
                self.reason_to_stop = self.ranks.from_first(self.stop_when.reason(epoch.metrics))
            yield epoch
        if self.trouble:
            raise Diverged(self.trouble)
        if self.reason_to_stop:
            raise Stopped(self.reason_to_stop)

    def _train_epoch(
        self,
        network: nn.Module,
        epoch: int,
        totals: EpochTotals,
        should_stop: Callable[[], bool],
        on_step: Callable[[StepView], None] | None,
    ) -> tuple[str | None, float]:
        """One pass over the data: (what went bad or None, seconds spent in the regulariser)."""
        model, regularizer, optimizer, ranks = self.model, self.regularizer, self.optimizer, self.ranks
        self.now = self.data.at_epoch(epoch)
        x, y, augmentation = self.now.train_x, self.now.train_y, self.now.augmentation
        labels = y[0].numel()  # of one example
        chance = generator(self.seed, "augmentation", epoch)
        parameters = [p for p in model.parameters() if p.requires_grad]
        torch.manual_seed(mixed_seed(self.seed, "epoch", epoch))  # dropout and the like
        batches = epoch_order(len(y), self.seed, epoch).to(self.device).split(self.batch_size)
        clock = time.perf_counter
        spectral_seconds = 0.0
        model.train()
        for number, batch in enumerate(batches, start=1):
            if ranks.any(should_stop()):
                raise Interrupted(f"stopped in epoch {epoch} before step {number} of {len(batches)}")
            optimizer.zero_grad(set_to_none=True)
            t0 = clock()
            regularizer.start()
            t1 = clock()
            mine = ranks.share(batch)
            inputs = x[mine]
            if augmentation is not None:
                inputs = augmentation.change(inputs, ranks.share(augmentation.draw(len(batch), chance)))
            with self._precision():
                logits = network(inputs)
            # This process's part of the mean over the batch; the parts add up to it.
            loss = summed_loss(logits, y[mine]) / (len(batch) * labels)
            (loss * ranks.size).backward()
            t2 = clock()
            try:
                regularizer.add_gradients()
            except NonFiniteError as error:
                return f"epoch {epoch}, step {number}: {_not_finite(model) or error}", spectral_seconds
            spectral_seconds += (t1 - t0) + (clock() - t2)
            norm = clip_(parameters, self.clip_norm)
            self.lr = optimizer.param_groups[0]["lr"]
            optimizer.step()
            self.schedule.step()
            self.step += 1
            totals.add(loss.detach(), norm, norm > self.clip_norm, regularizer)
            if on_step is not None:
                on_step(StepView(epoch, number, len(batches), loss.detach()))
            if number % CHECK_EVERY == 0 and ranks.any(not totals.finite):
                return f"epoch {epoch}, by step {number}: the loss or a gradient norm is not finite", spectral_seconds
        totals.sum_losses(ranks)
        if ranks.any(not totals.finite):
            return f"epoch {epoch}: the loss or a gradient norm is not finite", spectral_seconds
        return None, spectral_seconds

    def _precision(self) -> contextlib.AbstractContextManager[Any]:
        """Around the forward alone: the loss, the spectra and the evaluation are computed in float32 or better."""
        if self.precision == "float32":
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)

    def _epoch(self, means: Row, began: float, spectral_seconds: float) -> Epoch:
        over_layers, layers, spectra = spectral_figures(self.regularizer)
        network, per_layer = self.diagnose()
        number = {"epoch": self.epoch}
        metrics = {
            **number,
            "step": self.step,
            **means,
            **self._evaluation(),
            **over_layers,
            "seconds": time.perf_counter() - began,
            "spectral_seconds": spectral_seconds,
            "lr": self.lr,
            **self.now.columns,
            **self.regularizer.epoch_columns(),
            **network,
        }
        return Epoch(
            self.epoch,
            in_column_order(metrics),
            [number | row | per_layer.get(row["layer"], {}) for row in layers],
            [number | row for row in spectra],
        )

    def _evaluation(self) -> Row:
        """Loss and accuracy on the test and on the validation part, and of text the perplexity."""
        parts = {"test": (self.now.test_x, self.now.test_y), "val": (self.now.val_x, self.now.val_y)}
        row: Row = {}
        for part, (x, y) in parts.items():
            if x is None or y is None:
                continue
            loss, accuracy = evaluate(self.model, x, y)
            row |= {f"{part}_loss": loss, f"{part}_accuracy": accuracy}
            if self.now.is_text:
                row[f"{part}_perplexity"] = exp(min(loss, LARGEST_EXPONENT))
        return row

    def state_dict(self) -> dict[str, Any]:
        """The whole state after the last yielded epoch. No RNG state: each epoch seeds its own.

        With several processes all of them must call it: each keeps the warm starts of its own layers.
        """
        return {
            "epoch": self.epoch,
            "step": self.step,
            "trouble": self.trouble,
            "reason_to_stop": self.reason_to_stop,
            "stop_when": self.stop_when.state_dict(),
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
            "regularizers": self.ranks.gather(self.regularizer.state_dict()),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        saved_by = len(state["regularizers"])
        if saved_by != self.ranks.size:
            raise OtherProcesses(f"the checkpoint needs {saved_by} processes, got {self.ranks.size}")
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])
        self.regularizer.load_state_dict(state["regularizers"][self.ranks.rank])
        self.epoch, self.step, self.trouble = state["epoch"], state["step"], state["trouble"]
        if "stop_when" in state:  # not in a state of an earlier version
            self.reason_to_stop = state["reason_to_stop"]
            self.stop_when.load_state_dict(state["stop_when"])


def _not_finite(model: nn.Module) -> str:
    """Which weights are not, empty if all are."""
    names = [name for name, weight in model.named_parameters() if not weight.isfinite().all()]
    others = f" (nor {len(names) - 1} more)" if len(names) > 1 else ""
    return f"{names[0]} is not finite{others}" if names else ""


def whole(layers: list[Row]) -> bool:
    """Whether every layer has a spectrum: one that is not finite has nan in its row."""
    return not any(isnan(row["sigma_max"]) for row in layers)


def steps_per_epoch(examples: int, batch_size: int) -> int:
    """Steps in an epoch, a last smaller batch included."""
    return -(-examples // batch_size)
