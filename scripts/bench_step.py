#!/usr/bin/env python
"""A whole training step under CMR, by engine, beside its rivals: ratios to the plain vanilla step.

    python scripts/bench_step.py [--threads 2] [--rounds 15] [--width 256 --depth 15 --batch 64] [--slow]

Vanilla: the same network, torch's default Adam, a plain loop. Everybody else takes its step the way cmr_runner does
(fused Adam, gradients clipped at 5.0). One process, round-robin, so that a busy machine disturbs all alike; the least
and the median of all steps, three in a row a turn. `--cpu` counts the process's CPU time instead of the wall clock:
with `--threads 1` that is the measure for a machine that others are using. `overlap`: the spectral work is begun
before the forward, on another thread, and the network runs on one. `--slow` adds the rivals that take seconds a round.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from cmr_runner.inits import prescribed_kappa_
from cmr_runner.models import MLP
from cmr_runner.regularizers import CMR, SRIP, Orthogonal, Regularizer, SoftOrthogonality, SpectralNorm
from cmr_runner.spectral import moments
from cmr_runner.spectral.engines import keep_freed_memory, set_spectral_threads
from cmr_runner.training.clipping import clip_

Step = Callable[[], None]
WARM_UP = 10  # steps


class Bench:
    """One network size and one batch, for every contender the same."""

    def __init__(self, width: int, depth: int, batch: int, threads: int, kappa: float) -> None:
        self.width, self.depth, self.threads, self.kappa = width, depth, threads, kappa
        generator = torch.Generator().manual_seed(0)
        self.x = torch.randn(batch, 1, 28, 28, generator=generator)
        self.y = torch.randint(10, (batch,), generator=generator)

    def network(self) -> nn.Module:
        model = MLP((1, 28, 28), 10, depth=self.depth, width=self.width)
        prescribed_kappa_(model, torch.Generator().manual_seed(0), kappa=self.kappa)
        return model

    def vanilla(self) -> Step:
        model = self.network()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

        def step() -> None:
            torch.set_num_threads(self.threads)
            optimizer.zero_grad()
            cross_entropy(model(self.x), self.y).backward()
            optimizer.step()

        return step

    def regularised(self, make: Callable[[nn.Module], Regularizer], *, overlap: bool = False) -> Step:
        model = self.network()
        regularizer = make(model)
        parameters = list(model.parameters())
        optimizer = torch.optim.Adam(parameters, lr=1e-3, fused=True)

        def step() -> None:
            torch.set_num_threads(1 if overlap else self.threads)
            optimizer.zero_grad()
            if overlap:
                regularizer.start()
            cross_entropy(model(self.x), self.y).backward()
            regularizer.add_gradients()
            clip_(parameters, 5.0)
            optimizer.step()

        return step

    def autograd_through_svdvals(self) -> Step:
        """The penalty as most would write it first: differentiate the singular values of every layer."""
        model = self.network()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
        weights = torch.exp(0.15 * torch.arange(3))

        def penalty(W: torch.Tensor) -> torch.Tensor:
            sigma = torch.linalg.svdvals(W)
            cond = sigma[0].log() - 0.5 * (sigma[-1].square() + 1e-6).log()
            s = moments(sigma, (W.shape[0], W.shape[1]), 5, 1e-6)
            return cond + 0.1 * (weights * s[3:].square()).sum()

        def step() -> None:
            torch.set_num_threads(self.threads)
            optimizer.zero_grad()
            spectral = sum(penalty(layer.weight) for layer in model.layers)
            (cross_entropy(model(self.x), self.y) + 0.02 * spectral).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()

        return step

    def contenders(self, slow: bool) -> dict[str, Step]:
        def cmr(engine: str) -> Callable[[nn.Module], Regularizer]:
            return lambda model: CMR(model, engine=engine)

        steps = {"vanilla (plain loop, default Adam)": self.vanilla(), "none": self.regularised(Regularizer)}
        for engine in ("stochastic", "fast", "exact"):
            steps[f"CMR {engine}"] = self.regularised(cmr(engine))
            steps[f"CMR {engine}, overlap"] = self.regularised(cmr(engine), overlap=True)
        steps["spectral_norm"] = self.regularised(SpectralNorm)
        steps["soft orthogonality"] = self.regularised(lambda model: SoftOrthogonality(model, lam=1e-3))
        steps["SRIP"] = self.regularised(lambda model: SRIP(model, lam=1e-3))
        if slow:
            steps["autograd through svdvals"] = self.autograd_through_svdvals()
            for name in ("cayley", "householder", "matrix_exp"):
                steps[f"orthogonal, {name}"] = self.regularised(
                    lambda model, name=name: Orthogonal(model, orthogonal_map=name)
                )
        return steps


def times(steps: dict[str, Step], rounds: int, clock: Callable[[], float]) -> dict[str, list[float]]:
    """Seconds of each step in all rounds, taken in turns. A slow contender warms up for fewer steps."""
    for step in steps.values():
        begun = time.perf_counter()
        for _ in range(WARM_UP):
            step()
            if time.perf_counter() - begun > 5:
                break
    found: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            for _ in range(3):  # the first refills the caches that the one before has emptied
                begun = clock()
                step()
                found[name].append(clock() - begun)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("threads", 2), ("rounds", 15), ("width", 256), ("depth", 15), ("batch", 64)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--kappa", type=float, default=3.4, help="of every layer at the start; 3.4 is where CMR ends")
    parser.add_argument("--slow", action="store_true")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--only", help="comma-separated words: contenders with one of them in their name, and vanilla")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    set_spectral_threads(arguments.threads)
    keep_freed_memory()
    bench = Bench(arguments.width, arguments.depth, arguments.batch, arguments.threads, arguments.kappa)
    steps = bench.contenders(arguments.slow)
    if arguments.only:
        words = ("vanilla", *arguments.only.split(","))
        steps = {name: step for name, step in steps.items() if any(word in name for word in words)}
    found = times(steps, arguments.rounds, time.process_time if arguments.cpu else time.perf_counter)
    vanilla = next(iter(found.values()))
    size = f"{arguments.depth} layers × {arguments.width}, batch {arguments.batch}"
    print(f"{size}, {arguments.threads} threads, κ = {arguments.kappa:g}")
    print("| step | least, ms | × vanilla | median, ms | × vanilla |\n|---|---|---|---|---|")
    for name, seconds in found.items():
        columns = [f"{1e3 * of(seconds):.1f} | {of(seconds) / of(vanilla):.2f}" for of in (min, statistics.median)]
        print(f"| {name} | {' | '.join(columns)} |")


if __name__ == "__main__":
    main()
