"""CMR on one of timm's vision transformers: q, k and v are regularised apart, by head if asked.

pip install timm && python scripts/examples/timm_vit.py
"""

import timm
import torch
from torch.nn.functional import cross_entropy

from cmr_runner import CMR, LayerRule

STEPS = 4


def main() -> None:
    torch.manual_seed(0)
    model = timm.create_model("vit_tiny_patch16_224", img_size=32, depth=2, num_classes=10)
    images, labels = torch.randn(8, 3, 32, 32), torch.randint(10, (8,))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    cmr = CMR(model, lam=0.02, layers=LayerRule(heads=True))  # <-- one matrix per head
    cmr.attach(optimizer, clip_norm=1.0)  # <-- in timm's own train.py: after the optimiser is made
    print(cmr.plan)
    for _ in range(STEPS):
        optimizer.zero_grad()
        cross_entropy(model(images), labels).backward()
        optimizer.step()
    print(f"{cmr} after {cmr.step} steps: {cmr.last}")


if __name__ == "__main__":
    main()
