"""CMR in a plain training loop: the lines that matter are marked with <--.

python scripts/examples/plain_loop.py
"""

from itertools import pairwise

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy

from cmr_runner import CMR, analyze  # <--

STEPS, BATCH = 30, 64


def main() -> None:
    torch.manual_seed(0)
    digits = load_digits()
    images = torch.tensor(digits.data, dtype=torch.float32) / 16
    labels = torch.tensor(digits.target)
    widths = [64, 48, 48, 48, 10]
    layers = [module for i, o in pairwise(widths) for module in (nn.Linear(i, o), nn.Tanh())]
    model = nn.Sequential(*layers[:-1])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    cmr = CMR(model, lam=0.02, warmup_steps=10)  # <-- once

    for step in range(STEPS):
        batch = torch.randint(len(labels), (BATCH,))
        optimizer.zero_grad()
        loss = cross_entropy(model(images[batch]), labels[batch])
        loss.backward()
        cmr.add_gradients()  # <-- after backward, before the clip
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        if step % 10 == 9:
            print(f"step {step + 1}  loss {loss.item():.3f}  {cmr.last}")
    print(analyze(model))  # <-- one row per layer


if __name__ == "__main__":
    main()
