"""CMR in a Lightning trainer, with clipping, accumulation and mixed precision.

pip install lightning && python scripts/examples/lightning_callback.py
"""

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from cmr_runner.integrations.lightning import CMRCallback  # <--

STEPS = 10


class Classifier(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(20, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 4))

    def training_step(self, batch: list[Tensor], _: int) -> Tensor:
        return cross_entropy(self.net(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main() -> None:
    pl.seed_everything(0)
    data = TensorDataset(torch.randn(256, 20), torch.randint(4, (256,)))
    callback = CMRCallback(lam=0.02, warmup_steps=4)  # <--
    trainer = pl.Trainer(
        max_steps=STEPS,
        callbacks=[callback],  # <--
        gradient_clip_val=5.0,
        accumulate_grad_batches=2,
        precision="bf16-mixed",
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Classifier(), DataLoader(data, batch_size=32))
    assert callback.cmr is not None
    print(f"{callback.cmr} after {callback.cmr.step} steps: {callback.cmr.last}")


if __name__ == "__main__":
    main()
