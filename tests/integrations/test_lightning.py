"""CMRCallback in a real Lightning trainer, beside a plain loop."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from cmr_runner import CMR
from cmr_runner.data.torchvision_import import import_torchvision
from cmr_runner.models import MLP

import_torchvision()  # torchmetrics imports it
lightning = pytest.importorskip("lightning.pytorch")

from cmr_runner.integrations.lightning import CMRCallback  # noqa: E402 (needs lightning)

X = torch.randn(64, 12, generator=torch.Generator().manual_seed(1))
Y = torch.randint(0, 4, (64,), generator=torch.Generator().manual_seed(2))
OPTIONS: dict[str, Any] = {"lam": 10.0, "warmup_steps": 3}


class Module(lightning.LightningModule):
    def __init__(self, fused: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net, self.fused = MLP((12,), 4, depth=3, width=16), fused
        self.seen: list[list[Tensor]] = []

    def training_step(self, batch: list[Tensor], _: int) -> Tensor:
        return cross_entropy(self.net(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), fused=self.fused)

    def on_before_zero_grad(self, _: object) -> None:
        grads = [p.grad.clone() for p in self.parameters() if p.grad is not None]
        if grads:
            self.seen.append(grads)  # as the optimiser saw them, clipped


def fit(
    module: Module, directory: Path, *callbacks: object, checkpoint: Path | None = None, batch: int = 16, **keys: Any
) -> Any:
    trainer = lightning.Trainer(
        accelerator="cpu",
        callbacks=list(callbacks),
        default_root_dir=directory,
        enable_progress_bar=False,
        enable_model_summary=False,
        **{"max_steps": 4, "logger": False, "enable_checkpointing": False, **keys},
    )
    trainer.fit(module, DataLoader(TensorDataset(X, Y), batch_size=batch), ckpt_path=checkpoint)
    return trainer


def plain(steps: int, clip: float | None = None, accumulate: int = 1, dtype: torch.dtype | None = None) -> Module:
    module = Module()
    cmr, optimizer = CMR(module, **OPTIONS), module.configure_optimizers()
    for step in range(steps):
        optimizer.zero_grad()
        for i in range(accumulate):
            start = 16 * ((step * accumulate + i) % 4)
            with torch.autocast("cpu", dtype, enabled=dtype is not None):
                loss = cross_entropy(module.net(X[start : start + 16]), Y[start : start + 16])
            (loss / accumulate).backward()
        cmr.add_gradients()
        if clip:
            nn.utils.clip_grad_norm_(module.parameters(), clip)
        optimizer.step()
        module.on_before_zero_grad(None)
    return module


def same(one: Module, other: Module) -> None:
    for a, b in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)


def test_steps_are_those_of_a_plain_loop_with_the_clip_after_the_mixing(tmp_path: Path) -> None:
    module = Module()
    fit(module, tmp_path, CMRCallback(**OPTIONS), gradient_clip_val=0.05)
    expected = plain(4, clip=0.05)
    same(module, expected)
    for seen, by_hand in zip(module.seen, expected.seen[: len(module.seen)], strict=True):
        torch.testing.assert_close(seen, by_hand, rtol=1e-6, atol=1e-8)
    assert len(module.seen) >= 3
    assert list(module.state_dict()) == list(Module().state_dict())


def test_accumulation_and_bf16_mixed(tmp_path: Path) -> None:
    module = Module()
    callback = CMRCallback(**OPTIONS)
    fit(module, tmp_path, callback, accumulate_grad_batches=2, precision="bf16-mixed", max_steps=2)
    assert callback.cmr is not None
    assert callback.cmr.step == 2
    same(module, plain(2, accumulate=2, dtype=torch.bfloat16))


def test_numbers_reach_the_modules_logger_and_the_state_its_checkpoint(tmp_path: Path) -> None:
    whole = Module()  # every batch is the whole set, so that no step depends on how Lightning counts batches
    fit(whole, tmp_path, CMRCallback(**OPTIONS), max_steps=6, batch=64)

    first = Module()
    logger = lightning.loggers.CSVLogger(tmp_path)
    saving = {"enable_checkpointing": True, "logger": logger, "log_every_n_steps": 1}
    trainer = fit(first, tmp_path, CMRCallback(**OPTIONS), max_steps=4, batch=64, **saving)
    trainer.save_checkpoint(tmp_path / "four.ckpt")
    header = (Path(logger.log_dir) / "metrics.csv").read_text().splitlines()[0]
    assert {"cmr/kappa_mean", "cmr/penalty", "cmr/cap"} <= set(header.split(","))

    resumed, callback = Module(), CMRCallback(**OPTIONS)
    fit(resumed, tmp_path, callback, checkpoint=tmp_path / "four.ckpt", max_steps=6, batch=64)
    assert callback.cmr is not None
    assert callback.cmr.step == 6
    same(whole, resumed)


def test_a_trainer_that_never_logs_is_no_error(tmp_path: Path) -> None:
    callback = CMRCallback(**OPTIONS)
    fit(Module(), tmp_path, callback, max_steps=1, logger=lightning.loggers.CSVLogger(tmp_path), log_every_n_steps=0)
    assert callback.cmr is not None
    assert callback.cmr.step == 1


def test_a_fused_optimiser_under_a_grad_scaler_is_refused(tmp_path: Path) -> None:
    precision = lightning.plugins.MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu"))
    with pytest.raises(RuntimeError, match="leaves the gradients of a fused optimiser scaled"):
        fit(Module(fused=True), tmp_path, CMRCallback(**OPTIONS), plugins=[precision])
