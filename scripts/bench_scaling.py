#!/usr/bin/env python
"""How the spectral work grows with the width, by engine: time of one layer, and memory of a whole step.

    python scripts/bench_scaling.py [--widths 128,256,512,1024,2048] [--threads 1] [--memory 1024] [--cpu] [--model]

Times are of the penalty and gradient of one square layer, warm, taken in turns: the minimum of several rounds of
eight steps each, divided by eight, since `staggered` computes the moments in one step of eight. `--memory` adds the
peak of memory beyond that of a vanilla step (plain loop, default Adam) at that width, depth 6, batch 256, as a
multiple of the weights' size: each step runs in a process of its own, whose peak the system reports. `--model` sets
the formulas of cost_model.py beside what was measured, and evaluates them for three Transformers.
"""

import argparse
import multiprocessing
import resource
import time
from collections.abc import Callable

import torch
from cost_model import TRANSFORMERS, cost
from torch import Tensor
from torch.nn.functional import cross_entropy

from cmr_runner.inits import prescribed_kappa_
from cmr_runner.models import MLP
from cmr_runner.regularizers import CMR, Regularizer
from cmr_runner.spectral import PenaltySpec
from cmr_runner.spectral.engines import build_engine, set_spectral_threads
from cmr_runner.spectral.engines.lanczos import without
from cmr_runner.spectral.engines.staggered import TURNS
from cmr_runner.spectral.engines.stochastic import PROBES
from cmr_runner.spectral.engines.subspace import ROWS

ENGINES = ("exact", "fast", "stochastic", "staggered")
MODELLED = ("fast", "stochastic", "staggered")
HOLDING_AND_NOT = ("staggered", "stochastic")  # a gradient of the weights' size between steps; of engines for any size
NO_WORK = 40  # width: over the one that is computed whole
TURN = 8  # evaluations: staggered's refresh
EXACT_UP_TO = 1024  # beyond it one decomposition takes many seconds


def layer(width: int) -> Tensor:
    """(1, width, width) with singular values evenly spaced between 1 and 3.4, as CMR leaves them."""
    generator = torch.Generator().manual_seed(width)
    U, V = (torch.linalg.qr(torch.randn(width, width, generator=generator))[0] for _ in range(2))
    return ((U * torch.linspace(3.4, 1, width)) @ V.T).unsqueeze(0)


def times(widths: list[int], rounds: int, cpu: bool) -> dict[tuple[str, int], float]:
    clock = time.process_time if cpu else time.perf_counter
    spec = PenaltySpec()
    cases = {
        (name, width): (build_engine(name, seed=0), layer(width))
        for width in widths
        for name in ENGINES
        if name != "exact" or width <= EXACT_UP_TO
    }
    least = dict.fromkeys(cases, float("inf"))
    for turn in range(rounds + 1):
        for (name, width), (engine, W) in cases.items():
            begun = clock()
            for step in range(TURN * turn, TURN * (turn + 1)):
                engine.penalty(W, spec, group="g", step=TURNS * step)  # as in a whole round: it waited its turn
            if turn:  # the first has no warm start
                least[name, width] = min(least[name, width], (clock() - begun) / TURN)
    return least


def least(compute: Callable[[], object], clock: Callable[[], float], rounds: int = 5) -> float:
    """As the engines are timed: the minimum over rounds of the mean of a turn."""
    found = []
    for _ in range(rounds + 1):
        begun = clock()
        for _ in range(TURN):
            compute()
        found.append((clock() - begun) / TURN)
    return min(found[1:])


def predicted(engine: str, width: int, clock: Callable[[], float]) -> float:
    """Seconds by the model: operations at the speed that each kind of product has here, alone, at this width.

    Beside them what a step takes at a width at which the products are nothing: calls, and small algebra.
    """
    W, square = layer(width), layer(width)
    price = {}
    for kind, rows in (("edges", ROWS), ("probes", 2 * PROBES)):
        X = torch.randn(1, rows, width)
        price[kind] = least(lambda X=X: torch.bmm(torch.bmm(X, W.mT), W), clock) / (4 * rows * width**2)
    price["products"] = least(lambda: torch.bmm(W, square), clock) / (2 * width**3)
    block, before = torch.randn(1, ROWS, width), torch.randn(1, 3 * ROWS, width)
    price["rows"] = least(lambda: without(block, before), clock) / (4 * ROWS * 3 * ROWS * width)
    price["passes"] = least(lambda: torch.add(W, square, out=square), clock) / (3 * width**2)
    small, of_small = build_engine(engine, seed=0), layer(NO_WORK)
    calls = least(lambda: small.penalty(of_small, PenaltySpec(), group="g", step=0), clock)
    return calls + sum(price[kind] * getattr(cost(engine, (width, width)), kind) for kind in price)


def print_model(measured: dict[tuple[str, int], float], widths: list[int], cpu: bool) -> None:
    clock = time.process_time if cpu else time.perf_counter
    print("\nmodel, ms (÷ measured)\n| width | " + " | ".join(MODELLED) + " |\n|" + "---|" * (len(MODELLED) + 1))
    for width in widths:
        found = {name: predicted(name, width, clock) for name in MODELLED}
        cells = [f"{1e3 * found[name]:.1f} ({found[name] / measured[name, width]:.2f})" for name in MODELLED]
        print(f"| {width} | " + " | ".join(cells) + " |")
    print_transformers()


def print_transformers() -> None:
    """With layers divided over the ranks."""
    print("\n| | tokens per step | engine | operations of CMR ÷ of the network | ranks | GFLOP per rank |")
    print("|---|---|---|---|---|---|")
    costs = [(network, engine, network.cost(engine)) for network in TRANSFORMERS for engine in HOLDING_AND_NOT]
    for network, engine, of_all in costs:
        share, each = of_all.operations / network.step_operations, of_all.operations / network.ranks
        print(f"| {network.name} | {network.tokens:,} | {engine} | {share:.1e} | {network.ranks} | {each / 1e9:.1f} |")
    print("\n| | engine | held, GB | per rank, MB | summed over ranks, GB per step |\n|---|---|---|---|---|")
    for network, engine, of_all in costs:
        held, each, summed = of_all.held / 1e9, of_all.held / network.ranks / 1e6, of_all.exchanged / 1e9
        print(f"| {network.name} | {engine} | {held:.3g} | {each:.3g} | {summed:.2f} |")


def peak_of_steps(width: int, engine: str | None) -> int:
    """Bytes at the peak of a process that takes a few steps; engine None is the plain vanilla step."""
    torch.manual_seed(0)
    model = MLP((1, 28, 28), 10, depth=6, width=width)
    prescribed_kappa_(model, torch.Generator().manual_seed(0), kappa=3.4)
    regularizer = Regularizer(model) if engine is None else CMR(model, engine=engine)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=engine is not None)
    x, y = torch.randn(256, 1, 28, 28), torch.randint(10, (256,))
    for _ in range(4):
        optimizer.zero_grad()
        regularizer.start()
        cross_entropy(model(x), y).backward()
        regularizer.add_gradients()
        optimizer.step()
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def memory(width: int) -> dict[str, float]:
    """Peak beyond vanilla, in multiples of the weights."""
    context = multiprocessing.get_context("spawn")
    weights = 4 * sum(p.numel() for p in MLP((1, 28, 28), 10, depth=6, width=width).parameters())
    peaks = {}
    for engine in (None, "staggered", "stochastic", "fast"):
        with context.Pool(1) as pool:
            peaks[engine] = pool.apply(peak_of_steps, (width, engine))
    return {engine: (peak - peaks[None]) / weights for engine, peak in peaks.items() if engine is not None}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--widths", default="128,256,512,1024,2048")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--memory", type=int, default=0, metavar="WIDTH")
    parser.add_argument("--cpu", action="store_true", help="CPU time of the process instead of the wall clock")
    parser.add_argument("--model", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    set_spectral_threads(arguments.threads)
    widths = [int(width) for width in arguments.widths.split(",")]
    found = times(widths, arguments.rounds, arguments.cpu)
    print("ms for one square layer\n| width | " + " | ".join(ENGINES) + " |\n|" + "---|" * (len(ENGINES) + 1))
    for width in widths:
        cells = [f"{1e3 * found[name, width]:.1f}" if (name, width) in found else "" for name in ENGINES]
        print(f"| {width} | " + " | ".join(cells) + " |")
    for name in ENGINES:
        if (name, 512) in found and (name, 2048) in found:
            print(f"{name}: × {found[name, 2048] / found[name, 512]:.1f} from 512 to 2048")
    if arguments.model:
        print_model(found, widths, arguments.cpu)
    if arguments.memory:
        for name, multiple in memory(arguments.memory).items():
            print(f"memory beyond vanilla at width {arguments.memory}, {name}: {multiple:.2f} × the weights")


if __name__ == "__main__":
    main()
