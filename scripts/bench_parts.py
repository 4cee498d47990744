#!/usr/bin/env python
"""Where the spectral time of a step goes at the paper's size: the parts of `fast` and `stochastic`, one thread.

    python scripts/bench_parts.py [--rounds 30]

CPU time, the least of several, of the 13 square layers and of the first one (784 × 256), at κ = 3.4.
"""

import argparse
import time
from collections.abc import Callable

import torch

from cmr_runner import keep_freed_memory
from cmr_runner.inits import prescribed_kappa_
from cmr_runner.models import MLP
from cmr_runner.spectral import PenaltySpec
from cmr_runner.spectral.engines import build_engine, set_spectral_threads
from cmr_runner.spectral.engines.edges import gram_edges, krylov_edges
from cmr_runner.spectral.engines.probes import probed, signs


def least(compute: Callable[[], object], rounds: int) -> float:
    """Milliseconds."""
    found = []
    for _ in range(rounds + 2):
        begun = time.process_time()
        compute()
        found.append(time.process_time() - begun)
    return 1e3 * min(found[2:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    set_spectral_threads(1)
    keep_freed_memory()
    model = MLP((1, 28, 28), 10, depth=15, width=256)
    prescribed_kappa_(model, torch.Generator().manual_seed(0), kappa=3.4)
    weights = [layer.weight.detach() for layer in model.layers]
    W, first, spec = torch.stack(weights[1:14]), weights[0].unsqueeze(0), PenaltySpec()
    G, Vh = torch.bmm(W.mT, W), torch.linalg.svd(W)[2]
    start = Vh[:, 0] + Vh[:, -1]
    lam = torch.linalg.svdvals(W)[:, [0, -1]].double().square()
    c, d = lam.mean(-1).numpy(), ((lam[:, 0] - lam[:, 1]) / 2).numpy()
    Z = signs((13, 32, 256), torch.Generator().manual_seed(0))

    parts: dict[str, Callable[[], object]] = {
        "one product of the 13 square layers": lambda: torch.bmm(W, W),
        "edges, 16 Lanczos steps on the Gram matrix": lambda: gram_edges(W, G, start, 16, spec.eps),
        "edges, 8 Lanczos steps on W": lambda: krylov_edges(W, lambda X: torch.bmm(torch.bmm(X, W.mT), W), start, 8),
        "two blocks of 16 probes through the recurrence": lambda: probed(W, Z, c, d, spec.K),
        "eigh of the 13 Gram matrices": lambda: torch.linalg.eigh(G),
    }
    for name in ("fast", "stochastic"):
        engine = build_engine(name, seed=0)
        for group, batch in (("13 square layers", W), ("first layer", first)):
            engine.penalty(batch, spec, group=group, step=0)
            parts[f"`{name}`, {group}, all of it"] = lambda engine=engine, group=group, batch=batch: engine.penalty(
                batch, spec, group=group, step=1
            )
    print("| part | ms |\n|---|---|")
    for name, compute in parts.items():
        print(f"| {name} | {least(compute, rounds):.1f} |")


if __name__ == "__main__":
    main()
