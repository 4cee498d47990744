"""CMR under FSDP2: every process computes the spectra of some layers, and gets its pieces of the gradients.

torchrun --nproc-per-node=2 scripts/examples/fsdp2.py
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy

from cmr_runner import CMR

STEPS = 5


def main() -> None:
    dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 4))
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    cmr = CMR(model, lam=0.02)  # <-- nothing else: it sees that the weights are in pieces
    torch.manual_seed(1 + dist.get_rank())
    inputs, labels = torch.randn(32, 20), torch.randint(4, (32,))
    for _ in range(STEPS):
        optimizer.zero_grad()
        cross_entropy(model(inputs), labels).backward()
        cmr.add_gradients()  # <-- on every process
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
    if dist.get_rank() == 0:
        print(f"{cmr} after {cmr.step} steps: {cmr.last}", flush=True)
    dist.destroy_process_group()
    os._exit(0)  # PyTorch's gloo threads may abort an interpreter that is being taken down (pytorch issue 179291)


if __name__ == "__main__":
    main()
