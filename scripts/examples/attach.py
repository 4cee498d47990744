"""CMR inside optimizer.step(): for loops that one cannot or does not want to change.

python scripts/examples/attach.py
"""

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from cmr_runner import CMR

STEPS = 10


def main() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 4))
    inputs, labels = torch.randn(64, 20), torch.randint(4, (64,))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    cmr = CMR(model, lam=0.02)
    attachment = cmr.attach(optimizer, clip_norm=5.0)  # <-- from now on step() is: cap, mix, clip, update
    for _ in range(STEPS):
        optimizer.zero_grad()
        cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    print(f"{cmr} after {cmr.step} steps: {cmr.last}")
    attachment.remove()  # <-- undone: step() only updates


if __name__ == "__main__":
    main()
