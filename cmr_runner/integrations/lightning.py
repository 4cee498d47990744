"""CMR in Lightning: Trainer(callbacks=[CMRCallback(lam=0.02)])."""

from __future__ import annotations

from typing import Any

from torch.optim import Optimizer

from cmr_runner.regularizers import CMR

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ImportError:  # the same under its older name
    from pytorch_lightning import Callback, LightningModule, Trainer


class CMRCallback(Callback):
    """Adds CMR's gradient before each optimiser step: after accumulation and unscaling, before Lightning's clip.

    options: those of `CMR`, `layers=LayerRule(...)` among them. log_every_n_steps is the trainer's: penalty, cap, norms
    and κ go through the module's logger as `cmr/...`. The checkpoint holds the step counter and what the engine keeps:
    vectors and, with `auto`, one dense gradient per regularised weight. Where processes divide the layers, these are
    the first one's: the others have other layers, drop them, and start anew.
    """

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.cmr: CMR | None = None
        self._restored: dict[str, Any] | None = None

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.cmr = CMR(pl_module, **self.options)
        if self._restored is not None:  # Lightning restores callbacks before the fit starts
            self.cmr.load_state_dict(self._restored)
            self._restored = None

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer) -> None:
        scaler = getattr(trainer.precision_plugin, "scaler", None)
        if scaler is not None and getattr(optimizer, "_step_supports_amp_scaling", False):
            raise RuntimeError(
                "CMRCallback: under 16-mixed precision Lightning leaves the gradients of a fused optimiser scaled, and "
                "the cap compares their norm; make the optimiser with fused=False, or use bf16-mixed"
            )
        assert self.cmr is not None
        self.cmr.add_gradients()
        every = trainer.log_every_n_steps  # 0: never
        if trainer.logger is not None and every and trainer.global_step % every == 0:
            assert self.cmr.last is not None
            pl_module.log_dict({f"cmr/{key}": value for key, value in self.cmr.last.numbers().items()}, on_step=True)

    def state_dict(self) -> dict[str, Any]:
        return self.cmr.state_dict() if self.cmr is not None else {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._restored = state_dict or None
