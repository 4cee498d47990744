#!/usr/bin/env python
"""A whole training step under CMR, by engine, beside the other methods: ratios to the plain vanilla step.

    python scripts/bench_step.py [--network paper,wide,resnet18,vit,gpt2] [--threads 2] [--rounds 15] [--slow] [...]

Vanilla: the same network, torch's default Adam, a plain loop. The others take their step as a user of the drop-in
would (fused Adam, gradients clipped at 5.0); keep_freed_memory() is called for all of them, vanilla included. One
process, round-robin, so that a busy machine disturbs all alike; minimum and median of all steps, three in a row each
turn. `start()`: called before the forward, which lets CMR begin early where that pays. `--cpu` counts the process's CPU
time instead of the wall clock: with `--threads 1` that is the measure for a machine that others use. `--slow` adds the
methods that take seconds per round, `--turns` CMR in which a layer waits for at most 1, 2 or 4 steps. `--memory`: the
peak of memory beyond vanilla's, each in a process of its own, as a multiple of the regularised weights.
"""

import argparse
import multiprocessing
import resource
import statistics
import time
from collections.abc import Callable

import torch
from bench_networks import CASES, Case
from torch import nn

from cmr_runner import keep_freed_memory
from cmr_runner.regularizers import CMR, SRIP, Orthogonal, Regularizer, SoftOrthogonality, SpectralNorm, find_layers
from cmr_runner.regularizers.layers import LayerRule
from cmr_runner.spectral import moments
from cmr_runner.training.clipping import clip_

Step = Callable[[], None]
WARM_UP = 60  # steps: enough for start() to find out whether it pays
ENGINES = ("auto", "fast", "stochastic", "exact")
CUBIC = ("fast", "exact")  # engines that are not for layers of these networks
LARGE = ("wide", "resnet18", "gpt2")


def vanilla(case: Case) -> Step:
    model, loss = case.network(), case.loss()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step() -> None:
        optimizer.zero_grad()
        loss(model).backward()
        optimizer.step()

    return step


def regularised(case: Case, make: Callable[[nn.Module], Regularizer], *, start: bool = False) -> Step:
    model, loss = case.network(), case.loss()
    regularizer = make(model)
    parameters = list(model.parameters())
    optimizer = torch.optim.Adam(parameters, lr=1e-3, fused=True)

    def step() -> None:
        optimizer.zero_grad()
        if start:
            regularizer.start()
        loss(model).backward()
        regularizer.add_gradients()
        clip_(parameters, 5.0)
        optimizer.step()

    return step


def autograd_through_svdvals(case: Case) -> Step:
    """The penalty as most would write it first: differentiate the singular values of every layer."""
    model, loss = case.network(), case.loss()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    weights = torch.exp(0.15 * torch.arange(3))

    def penalty(W: torch.Tensor) -> torch.Tensor:
        sigma = torch.linalg.svdvals(W)
        cond = sigma[0].log() - 0.5 * (sigma[-1].square() + 1e-6).log()
        s = moments(sigma, (W.shape[0], W.shape[1]), 5, 1e-6)
        return cond + 0.1 * (weights * s[3:].square()).sum()

    def step() -> None:
        optimizer.zero_grad()
        spectral = sum(penalty(p.flatten(1)) for p in model.parameters() if p.ndim >= 2)
        (loss(model) + 0.02 * spectral).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()

    return step


def contenders(name: str, *, slow: bool = False, turns: bool = False) -> dict[str, Callable[[], Step]]:
    case = CASES[name]

    def of(make: Callable[[nn.Module], Regularizer], start: bool = False) -> Callable[[], Step]:
        return lambda: regularised(case, make, start=start)

    made = {"vanilla (plain loop, default Adam)": lambda: vanilla(case), "none": of(Regularizer)}
    for engine in ENGINES:
        if engine in CUBIC and name in LARGE:
            continue

        def cmr(model: nn.Module, engine: str = engine) -> Regularizer:
            return CMR(model, engine=engine)

        made[f"CMR {engine}"] = of(cmr)
        made[f"CMR {engine}, start()"] = of(cmr, start=True)
    for most in (1, 2, 4) if turns else ():
        made[f"CMR auto, turns {most}"] = of(
            lambda model, most=most: CMR(model, engine={"name": "auto", "turns": most})
        )
    made["spectral_norm"] = of(SpectralNorm)
    made["soft orthogonality"] = of(lambda model: SoftOrthogonality(model, lam=1e-3))
    made["SRIP"] = of(lambda model: SRIP(model, lam=1e-3))
    if slow:
        made["autograd through svdvals"] = lambda: autograd_through_svdvals(case)
        for orthogonal_map in ("cayley", "householder", "matrix_exp"):
            made[f"orthogonal, {orthogonal_map}"] = of(
                lambda model, chosen=orthogonal_map: Orthogonal(model, orthogonal_map=chosen)
            )
    return made


def times(steps: dict[str, Step], rounds: int, clock: Callable[[], float]) -> dict[str, list[float]]:
    """Seconds of each step in all rounds, taken in turns. A slow contender warms up for fewer steps."""
    for step in steps.values():
        begun = time.perf_counter()
        for _ in range(WARM_UP):
            step()
            if time.perf_counter() - begun > 10:
                break
    found: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            for _ in range(3):  # the first refills the caches that the one before has emptied
                begun = clock()
                step()
                found[name].append(clock() - begun)
    return found


def table(found: dict[str, list[float]]) -> str:
    lines = ["| step | minimum, ms | × vanilla | median, ms | × vanilla |", "|---|---|---|---|---|"]
    first = next(iter(found.values()))
    for name, seconds in found.items():
        cells = [f"{1e3 * of(seconds):.1f} | {of(seconds) / of(first):.2f}" for of in (min, statistics.median)]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def peak(network: str, contender: str, threads: int) -> int:
    """Bytes at the peak of a process that takes a few steps."""
    torch.set_num_threads(threads)
    step = contenders(network)[contender]()
    for _ in range(3):  # the first evaluates every layer, the next ones some of them
        step()
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def print_memory(network: str, threads: int) -> None:
    context = multiprocessing.get_context("spawn")
    layers = find_layers(CASES[network].network(), LayerRule())
    weights = 4 * sum(m * n for m, n in (layer.shape for layer in layers))
    names = ["vanilla (plain loop, default Adam)", "none", "CMR auto", "CMR auto, start()"]
    peaks = {}
    for name in names:
        with context.Pool(1) as pool:
            peaks[name] = pool.apply(peak, (network, name, threads))
    for name in names[1:]:
        beyond = (peaks[name] - peaks[names[0]]) / weights
        print(f"memory beyond vanilla, {name}: {beyond:.2f} × the regularised weights ({weights / 2**20:.0f} MiB)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", default="paper", help=f"comma-separated, of {', '.join(CASES)}")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--slow", action="store_true")
    parser.add_argument("--turns", action="store_true")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--only", help="comma-separated words: contenders with one of them in their name, and vanilla")
    arguments = parser.parse_args()
    networks = arguments.network.split(",")
    if unknown := [name for name in networks if name not in CASES]:
        parser.error(f"argument --network: {unknown[0]} is none of {', '.join(CASES)}")
    torch.set_num_threads(arguments.threads)
    keep_freed_memory()
    for network in networks:
        made = contenders(network, slow=arguments.slow, turns=arguments.turns)
        if arguments.only:
            words = ("vanilla", *arguments.only.split(","))
            made = {name: make for name, make in made.items() if any(word in name for word in words)}
        steps = {name: make() for name, make in made.items()}
        found = times(steps, arguments.rounds, time.process_time if arguments.cpu else time.perf_counter)
        print(f"{CASES[network].title}, {arguments.threads} threads\n{table(found)}", flush=True)
        del steps
        if arguments.memory:
            print_memory(network, arguments.threads)


if __name__ == "__main__":
    main()
