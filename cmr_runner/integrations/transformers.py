"""CMR in Hugging Face's Trainer: Trainer(..., callbacks=[CMRCallback(lam=0.02)])."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from cmr_runner.regularizers import CMR

FILE = "cmr.pt"  # in each checkpoint's directory
LIMIT = "_cmr_max_grad_norm"  # the user's, kept in the arguments while theirs is infinite


class CMRCallback(TrainerCallback):
    """Adds CMR's gradient before each optimiser step, then clips: the paper's order, cap, mix, clip.

    The Trainer clips before it calls its callbacks, so the cap would see clipped norms, and the sum could reach
    1.5 max_grad_norm (at rho_spec = 0.5). Therefore the callback takes over the clip: during training the Trainer's
    own limit is infinite (it still unscales and logs the task's gradient norm), and the callback clips at the
    `max_grad_norm` that the arguments had.

    options: those of `CMR`. Penalty, cap, norms and κ are added to what the Trainer logs, as `cmr/...`. Checkpoints
    hold, in cmr.pt, the step counter and what the engine keeps: vectors and, with `auto`, one dense gradient per
    regularised weight. Where processes divide the layers, these are the first one's: the others have other layers, drop
    them, and start anew.
    """

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.cmr: CMR | None = None
        self.max_grad_norm = 0.0

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, *, model: nn.Module, **_: Any
    ) -> None:
        self.cmr = CMR(model, **self.options)
        if state.global_step > 0:  # resumed
            saved = self._file(args, state)
            if saved.is_file():
                self.cmr.load_state_dict(torch.load(saved, weights_only=True))
            else:
                self.cmr.step = state.global_step
        # After a training that raised, the arguments still have the infinite limit.
        limit = getattr(args, LIMIT, math.inf) if args.max_grad_norm == math.inf else args.max_grad_norm
        self.max_grad_norm = limit or 0.0
        setattr(args, LIMIT, self.max_grad_norm)
        args.max_grad_norm = math.inf

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        args.max_grad_norm = self.max_grad_norm
        delattr(args, LIMIT)

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, *, model: nn.Module, **_: Any
    ) -> None:
        assert self.cmr is not None
        self.cmr.add_gradients()
        if self.max_grad_norm > 0:
            nn.utils.clip_grad_norm_(model.parameters(), self.max_grad_norm)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        *,
        logs: dict[str, float],
        **_: Any,
    ) -> None:
        if self.cmr is not None and self.cmr.last is not None and "loss" in logs:
            numbers = {f"cmr/{key}": value for key, value in self.cmr.last.numbers().items()}
            logs.update(numbers)
            state.log_history[-1].update(numbers)

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if self.cmr is not None and state.is_world_process_zero:
            torch.save(self.cmr.state_dict(), self._file(args, state))

    def _file(self, args: TrainingArguments, state: TrainerState) -> Path:
        return Path(args.output_dir or ".") / f"checkpoint-{state.global_step}" / FILE
