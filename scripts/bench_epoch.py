#!/usr/bin/env python
"""A κ-stress epoch of cmr_runner, vanilla and with CMR, beside the same vanilla epoch in the usual way of writing it.

The usual way: torchvision's MNIST with ToTensor and Normalize, DataLoader(batch_size=64, shuffle=True), default Adam.
One process, round-robin, least of several; all clip at 5.0 and evaluate on the whole test set. CMR's first epoch, in
which κ is large, is left out. Also: start-up to the first step.

    python scripts/bench_epoch.py [--rounds 3] [--threads 2]
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from cmr_runner.data.arguments import data_root
from cmr_runner.data.mnist import mnist
from cmr_runner.data.torchvision_import import import_torchvision
from cmr_runner.inits import orthogonal_
from cmr_runner.models import MLP
from cmr_runner.regularizers import CMR, Regularizer
from cmr_runner.training.loop import Trainer
from cmr_runner.training.optimizers import optimizer_of
from cmr_runner.training.seeding import generator


def network() -> nn.Module:
    model = MLP((1, 28, 28), 10)
    orthogonal_(model, generator(0, "init"), gain=0.06)
    return model


class UsualWay:
    """Dataset, DataLoader, Adam, a plain loop."""

    def __init__(self) -> None:
        torchvision = import_torchvision()
        transforms = torchvision.transforms
        pipeline = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.1307,), (0.3081,))])
        root = data_root(None)
        train = torchvision.datasets.MNIST(root, train=True, transform=pipeline)
        test = torchvision.datasets.MNIST(root, train=False, transform=pipeline)
        self.train = torch.utils.data.DataLoader(train, batch_size=64, shuffle=True)
        self.test = torch.utils.data.DataLoader(test, batch_size=1000)
        self.model = network()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)

    def epoch(self) -> None:
        self.model.train()
        for x, y in self.train:
            self.optimizer.zero_grad()
            cross_entropy(self.model(x), y).backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
            self.optimizer.step()
        self.model.eval()
        with torch.no_grad():
            sum((self.model(x).argmax(1) == y).sum() for x, y in self.test)


class Ours:
    """The runner's own trainer, spectra at the epoch's end included."""

    def __init__(self, epochs: int, make: Callable[[nn.Module], Regularizer]) -> None:
        model = network()
        regularizer = make(model)
        self.run = Trainer(
            model=model,
            data=mnist(),
            regularizer=regularizer,
            optimizer=optimizer_of(partial(torch.optim.Adam), model),
            seed=0,
            epochs=epochs,
        ).run()
        next(self.run)  # epoch 0: before training

    def epoch(self) -> None:
        next(self.run)


def start_up_seconds() -> float:
    """From typing cmr-run to the first epoch's row being under way: a run with one step of training."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "cmr_runner", "regularizer=cmr", f"output_root={folder}", "trainer.epochs=1"]
        began = time.perf_counter()
        process = subprocess.Popen([*command, "progress=none"], stdout=subprocess.DEVNULL)
        # The row of epoch 0 is written before the first step; spectra and evaluation come with it.
        while process.poll() is None and not any(Path(folder).rglob("metrics.csv")):
            time.sleep(0.005)
        seconds = time.perf_counter() - began
        process.kill()
        process.wait()
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)

    with_cmr = Ours(arguments.rounds + 1, lambda model: CMR(model, warmup=2, steps_per_epoch=938))
    with_cmr.epoch()
    contestants = {
        "usual way": UsualWay(),
        "cmr_runner, none": Ours(arguments.rounds, Regularizer),
        "cmr_runner, cmr": with_cmr,
    }
    least = dict.fromkeys(contestants, float("inf"))
    for _ in range(arguments.rounds):
        for name, contestant in contestants.items():
            began = time.perf_counter()
            contestant.epoch()
            least[name] = min(least[name], time.perf_counter() - began)
    for name, seconds in least.items():
        of_none = seconds / least["cmr_runner, none"]
        print(f"{name:<18} {seconds:6.2f} s, {seconds / least['usual way']:.2f} x the usual way, {of_none:.2f} x none")
    print(f"start-up to the first step: {min(start_up_seconds() for _ in range(3)):.2f} s (data on disk)")


if __name__ == "__main__":
    main()
