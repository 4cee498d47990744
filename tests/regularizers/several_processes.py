"""What torchrun starts in test_several_processes.py: gradients of a few steps, written by the first process."""

import os
import sys

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from cmr_runner import CMR, LayerRule, analyze


class Network(nn.Module):
    """An odd width, so that shards differ in size; a fused weight; a convolution; an embedding that is left out."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(11, 9)
        self.conv = nn.Conv1d(9, 12, 3, groups=3)
        self.attention = nn.MultiheadAttention(12, 3, batch_first=True)
        self.body = nn.Sequential(nn.Linear(12, 7), nn.Tanh(), nn.Linear(7, 7), nn.Tanh())
        self.head = nn.Linear(7, 5)

    def forward(self, x: Tensor) -> Tensor:
        z = self.conv(self.embed(x).mT).mT
        z = self.attention(z, z, z, need_weights=False)[0].mean(1)
        return self.head(self.body(z))


TOKENS = torch.randint(0, 11, (8, 6), generator=torch.Generator().manual_seed(1))
LABELS = torch.randint(0, 5, (8,), generator=torch.Generator().manual_seed(2))


def whole(tensor: Tensor) -> Tensor:
    return (tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor).detach().clone()


WAYS = ("ddp", "fsdp", "fsdp_partly")
ALL_LAYERS = {"lam": 1.0, "engine": "exact"}
BY_TURNS = {"lam": 1e-4}  # so that from the ninth step on a layer waits, and most turns have one layer
STEPS = 12


def trained(way: str, rank: int, size: int, how: dict[str, object]) -> dict[str, object]:
    """STEPS of SGD, alone or by one of WAYS; what the last one's gradients were, and more.

    In float64: halves of a batch, averaged over processes, are another order of summation, and steps magnify that.
    """
    model = wrapped = Network().double()
    options = {**how, "layers": LayerRule(exclude=["*.v"])}
    if way == "ddp":
        wrapped = DistributedDataParallel(model)
        options["process_group"] = dist.group.WORLD
    elif way == "fsdp":
        for part in (*model.body, model.attention):
            fully_shard(part)
        fully_shard(model)
    elif way == "fsdp_partly":  # the rest is on every process
        fully_shard(model.body)
    cmr = CMR(model, **options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    share = slice(None) if way in ("alone", "fsdp_partly") else slice(rank, None, size)
    numbers, computed = {}, []
    for _ in range(STEPS):
        optimizer.zero_grad()
        nn.functional.cross_entropy(wrapped(TOKENS[share]), LABELS[share]).backward()
        cmr.add_gradients()
        numbers = cmr.last.numbers()
        computed.append([layer.name for part in cmr.groups.parts.values() for layer in part.layers])
        gradients = {name: whole(p.grad) for name, p in model.named_parameters() if p.grad is not None}
        optimizer.step()
    weights = {name: whole(p) for name, p in model.named_parameters()}
    kappa = analyze(model)["kappa"].tolist()
    return {"gradients": gradients, "weights": weights, "numbers": numbers, "kappa": kappa, "computed": computed}


def main(file: str) -> None:
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    found = {}
    for way in WAYS:
        for turns in (False, True):
            of_rank = trained(way, rank, size, BY_TURNS if turns else ALL_LAYERS)
            computed: list[list[list[str]]] = [[] for _ in range(size)]
            dist.all_gather_object(computed, of_rank.pop("computed"))
            found[way, turns] = {**of_rank, "computed": computed}
    if rank == 0:
        torch.save(found, file)
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # gloo's threads may abort an interpreter that is being taken down


if __name__ == "__main__":
    main(*sys.argv[1:])
