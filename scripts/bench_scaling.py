#!/usr/bin/env python
"""How the spectral work grows with the width, by engine: time of one layer, and memory of a whole step.

    python scripts/bench_scaling.py [--widths 128,256,512,1024,2048] [--threads 1] [--memory 1024] [--cpu]

Times are of the penalty and gradient of one square layer, warm, taken in turns: the minimum of several rounds of
eight steps each, divided by eight, since `staggered` computes the moments in one step of eight. `--memory` adds the
peak of memory beyond that of a vanilla step (plain loop, default Adam) at that width, depth 6, batch 256, as a
multiple of the weights' size: each step runs in a process of its own, whose peak the system reports.
"""

import argparse
import multiprocessing
import resource
import time

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from cmr_runner.inits import prescribed_kappa_
from cmr_runner.models import MLP
from cmr_runner.regularizers import CMR, Regularizer
from cmr_runner.spectral import PenaltySpec
from cmr_runner.spectral.engines import build_engine, set_spectral_threads

ENGINES = ("exact", "fast", "stochastic", "staggered")
TURN = 8  # steps: staggered's refresh
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
                engine.penalty(W, spec, group="g", step=step)
            if turn:  # the first has no warm start
                least[name, width] = min(least[name, width], (clock() - begun) / TURN)
    return least


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
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    set_spectral_threads(arguments.threads)
    widths = [int(width) for width in arguments.widths.split(",")]
    least = times(widths, arguments.rounds, arguments.cpu)
    print("ms for one square layer\n| width | " + " | ".join(ENGINES) + " |\n|" + "---|" * (len(ENGINES) + 1))
    for width in widths:
        cells = [f"{1e3 * least[name, width]:.1f}" if (name, width) in least else "" for name in ENGINES]
        print(f"| {width} | " + " | ".join(cells) + " |")
    for name in ENGINES:
        if (name, 512) in least and (name, 2048) in least:
            print(f"{name}: × {least[name, 2048] / least[name, 512]:.1f} from 512 to 2048")
    if arguments.memory:
        for name, multiple in memory(arguments.memory).items():
            print(f"memory beyond vanilla at width {arguments.memory}, {name}: {multiple:.2f} × the weights")


if __name__ == "__main__":
    main()
