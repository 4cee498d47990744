"""What a person reads of a run that goes on."""

import io
import sys
from pathlib import Path

import pytest
import torch

from cmr_runner.commands.progress import Progress
from cmr_runner.runs.listener import Beginning
from cmr_runner.runs.records import Records
from cmr_runner.training.loop import StepView


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_live_line_says_of_which_epoch_its_results_are(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"TERM": "xterm", "COLUMNS": "160", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stdout", Terminal())
    progress = Progress("auto")
    progress.begin(Beginning(Path("a_run"), "single", {}, {}, Records(), epochs=3, steps_per_epoch=10))
    row = {"epoch": 1, "train_loss": 1.5, "test_accuracy": 0.375, "kappa_mean": 1.1737, "seconds": 2.0}
    progress.epoch(row, [])
    progress.step(StepView(epoch=2, step=5, steps=10, loss=torch.tensor(0.5)))
    assert progress._bar is not None
    progress._bar.refresh()
    live = sys.stdout.getvalue().splitlines()[-1]  # type: ignore[attr-defined]
    progress.end("interrupted", "")
    assert "epoch 2/3" in live
    assert "loss 0.5000  after epoch 1: accuracy 37.50 %  mean κ 1.174" in live
