"""How good an engine's spectra are along a real κ-stress run, against `exact` in float64, at percentiles.

    python scripts/bench_edges.py [--engine auto] [--refresh 8] [--blocks 4] [--steps 1876] [--every 15]

The run is the paper's (MNIST, 15 × 256 tanh, orthogonal × 0.06, Adam 1e-3, batch 64, λ = 0.02, warm-up of 2 epochs).
For the layers whose short side is over 32, at every so many-th step: κ; σ_min and σ_max found ÷ true; the Rayleigh gap
at each edge in % of the spread of the Gram spectrum; the cosine of ∇ρ_cond with the exact one, which a vector from a
dense edge can fail; and the cosine of ∇ρ_moment, as held, with the exact one, each averaged over as many steps as a
turn takes.
"""

import argparse
from collections import defaultdict, deque
from dataclasses import replace

import torch
from torch import Tensor, nn

from cmr_runner.data.mnist import mnist
from cmr_runner.inits import orthogonal_
from cmr_runner.models import MLP
from cmr_runner.regularizers import CMR
from cmr_runner.spectral import PenaltySpec, rho_cond_slopes
from cmr_runner.spectral.engines import ENGINES
from cmr_runner.spectral.engines.staggered import REFRESH, SMALL_SIDE
from cmr_runner.spectral.engines.subspace import KEPT
from cmr_runner.spectral.penalty import LayerPenalty, exact_penalty

LEVELS = (0.5, 0.95, 0.99, 1.0)


class Watch:
    """An engine's `penalty`, with what it found compared to the truth at chosen steps."""

    def __init__(self, cmr: CMR, every: int, turn: int) -> None:
        self.engine, self.measure, self.every, self.turn = cmr.engine, cmr.engine.penalty, every, turn
        self.seen: dict[str, list[Tensor]] = defaultdict(list)
        self.gradients: dict[str, deque[tuple[Tensor, Tensor]]] = defaultdict(lambda: deque(maxlen=turn))
        self.fallbacks = self.layers = 0

    def __call__(self, W: Tensor, spec: PenaltySpec, *, group: str, step: int) -> LayerPenalty:
        found = self.measure(W, spec, group=group, step=step)
        if min(W.shape[1:]) > SMALL_SIDE:
            self.fallbacks += found.fallbacks
            self.layers += len(W)
            if step >= self.turn and -step % self.every < self.turn:  # the steps of a turn up to the one looked at
                of_moments = exact_penalty(W.double(), replace(spec, alpha1=0.0)).gradient.flatten(1)
                held = found.gradient.double().flatten(1) - self.of_edges(W.double(), spec, group)
                self.gradients[group].append((held, of_moments))
            if step >= self.turn and step % self.every == 0:
                self.compare(W.double(), found, spec, group)
        return found

    def of_edges(self, W: Tensor, spec: PenaltySpec, group: str) -> Tensor:
        """α₁∇ρ_cond by the engine's own edge vectors, (B, m·n)."""
        V = self.engine._held[group].X[:, ::KEPT].double()
        wide = W.shape[1] < W.shape[2]
        Y = V @ (W if wide else W.mT)
        sigma = Y.norm(dim=-1)
        U = Y / sigma.unsqueeze(-1) * (spec.alpha1 * rho_cond_slopes(sigma, spec.eps)).unsqueeze(-1)
        return ((V.mT @ U) if wide else (U.mT @ V)).flatten(1)

    def compare(self, W: Tensor, found: LayerPenalty, spec: PenaltySpec, group: str) -> None:
        sigma = torch.linalg.svdvals(W)
        lam = sigma[:, [0, -1]].square()
        rayleigh = torch.stack([found.sigma_max, found.sigma_min], -1).double().square()
        gap = 100 * (lam - rayleigh).abs() / (lam[:, :1] - lam[:, 1:])
        cond = self.of_edges(W, spec, group)
        truth = exact_penalty(W, replace(spec, alpha2=0.0)).gradient.flatten(1)
        held, exact = (torch.stack(list(column)).mean(0) for column in zip(*self.gradients[group], strict=True))
        self.seen["κ"].append(sigma[:, 0] / sigma[:, -1])
        self.seen["σ_min found ÷ true"].append(found.sigma_min.double() / sigma[:, -1])
        self.seen["σ_max true ÷ found"].append(sigma[:, 0] / found.sigma_max.double())
        self.seen["gap at the high edge, %"].append(gap[:, 0])
        self.seen["gap at the low edge, %"].append(gap[:, 1])
        self.seen["1 − cosine of ∇ρ_cond"].append(1 - nn.functional.cosine_similarity(cond, truth))
        self.seen["1 − cosine of ∇ρ_moment over a turn"].append(1 - nn.functional.cosine_similarity(held, exact))

    def print(self) -> None:
        levels = torch.tensor(LEVELS, dtype=torch.float64)
        print("| | " + " | ".join(f"{100 * level:g} %" for level in LEVELS) + " |\n|" + "---|" * (len(LEVELS) + 1))
        for name, values in self.seen.items():
            print(f"| {name} | " + " | ".join(f"{q:.4g}" for q in torch.cat(values).quantile(levels)) + " |")
        print(f"layers computed another way: {self.fallbacks} of {self.layers}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", default="auto", choices=[name for name in ENGINES if name in ("auto", "staggered")])
    parser.add_argument("--refresh", type=int, default=REFRESH)
    parser.add_argument("--blocks", type=int, help="products with the Gram matrix at every step, the engine's `steps`")
    parser.add_argument("--steps", type=int, default=1876)
    parser.add_argument("--every", type=int, default=15, help="look at every so many-th step")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)

    data = mnist()
    generator = torch.Generator().manual_seed(arguments.seed)
    model = MLP((1, 28, 28), 10)
    orthogonal_(model, generator, gain=0.06)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    engine = {"name": arguments.engine, "refresh": arguments.refresh, "steps": arguments.blocks}
    cmr = CMR(model, engine=engine, warmup=2, steps_per_epoch=len(data.train_x) // 64, seed=arguments.seed)
    watch = Watch(cmr, arguments.every, arguments.refresh)
    cmr.engine.penalty = watch  # type: ignore[method-assign]
    for step in range(arguments.steps):
        batch = torch.randint(len(data.train_x), (64,), generator=generator)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(data.train_x[batch]), data.train_y[batch])
        loss.backward()
        cmr.add_gradients()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        if step % 300 == 0 and watch.seen:
            print(f"step {step}: loss {loss.item():.3f}, median κ {watch.seen['κ'][-1].median():.2f}", flush=True)
    watch.print()


if __name__ == "__main__":
    main()
