"""How good an engine's spectra are along a real κ-stress run, against `exact` in float64, at percentiles.

    python scripts/bench_edges.py [--engine auto] [--refresh 4] [--degree 6] [--turns 8] [--steps 4690] [--every 40]
                                  [--kappa 1e4]

The run is the paper's (MNIST, 15 × 256 tanh, orthogonal × 0.06, Adam 1e-3, batch 64, λ = 0.02, warm-up of 2 epochs).
For the layers whose short side is over 40, at every so many-th of their evaluations: κ; σ_min and σ_max found ÷ true;
the Rayleigh gap at each edge in % of the spread of the Gram spectrum; the cosine of ∇ρ_cond with the exact one, which a
vector from a dense edge can fail, and for comparison that of the exact edge vectors of the evaluation before; and the
cosine of ∇ρ_moment, as held, with the exact one, each averaged over 8 evaluations. Of this also what it would be if
only one of its two parts erred: what falls on the edges, or the rest, which is held.
"""

import argparse
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from cmr_runner.data.mnist import mnist
from cmr_runner.inits import orthogonal_, prescribed_kappa_
from cmr_runner.models import MLP
from cmr_runner.regularizers import CMR
from cmr_runner.spectral import PenaltySpec, rho_cond_slopes
from cmr_runner.spectral.engines import ENGINES
from cmr_runner.spectral.engines.assembly import normalisation, polynomial_moments, slopes
from cmr_runner.spectral.engines.staggered import REFRESH, SMALL_SIDE
from cmr_runner.spectral.moments import chebyshev
from cmr_runner.spectral.penalty import LayerPenalty, exact_penalty

LEVELS = (0.5, 0.95, 0.99, 1.0)
AVERAGED = 8  # evaluations: what a layer's weights feel of ∇ρ_moment, whatever `refresh` is
Place = tuple[str, int]  # a layer: its group, and its place in it
Parts = tuple[Tensor, Tensor]  # of α₂∇ρ_moment, (1, m·n) each: on the edges, and the rest


class Watch:
    """An engine's `penalty`, with what it found compared to the truth at chosen evaluations of each layer."""

    def __init__(self, cmr: CMR, every: int) -> None:
        self.engine, self.measure, self.every = cmr.engine, cmr.engine.penalty, every
        self.seen: dict[str, list[Tensor]] = defaultdict(list)
        self.gradients: dict[Place, deque[tuple[Parts, Parts]]] = defaultdict(lambda: deque(maxlen=AVERAGED))
        self.fallbacks = self.layers = 0
        self.count: dict[Place, int] = defaultdict(int)  # evaluations of a layer
        self.before: dict[Place, Tensor] = {}  # exact edge vectors of the evaluation before the one looked at

    def __call__(
        self, W: Tensor, spec: PenaltySpec, *, group: str, step: int, place: tuple[int, int] | None = None
    ) -> LayerPenalty:
        first, count = place or (0, len(W))
        found = self.measure(W, spec, group=group, step=step, place=(first, count))
        if min(W.shape[1:]) > SMALL_SIDE:
            self.fallbacks += found.fallbacks
            self.layers += len(W)
            for i in range(len(W)):
                self.look(W[i : i + 1].double(), found, i, spec, (group, first + i))
        return found

    def look(self, W: Tensor, found: LayerPenalty, i: int, spec: PenaltySpec, layer: Place) -> None:
        to_go = -self.count[layer] % self.every  # evaluations until the next one looked at
        if to_go < AVERAGED:
            assert found.dense is not None
            group, place = layer
            through = self.engine._held[group].through[place : place + 1]
            on_edges = on_vectors(W, edge_vectors(found, i), lambda sigma: sigma * through)
            rest = found.dense[i : i + 1].double().flatten(1)
            self.gradients[layer].append(((on_edges, rest), exact_parts(W, spec)))
        if to_go == 0 and self.count[layer]:
            sigma = torch.stack([found.sigma_max[i : i + 1], found.sigma_min[i : i + 1]], -1)
            self.compare(W, sigma.double(), edge_vectors(found, i), spec, layer)
        if to_go == 1:
            U, _, Vh = torch.linalg.svd(W, full_matrices=False)
            self.before[layer] = U[:, :, [0, -1]].mT if W.shape[1] < W.shape[2] else Vh[:, [0, -1]]
        self.count[layer] += 1

    def compare(self, W: Tensor, found: Tensor, vectors: Tensor, spec: PenaltySpec, layer: Place) -> None:
        """found: σ_max and σ_min, (1, 2), and their vectors on the short side, (1, 2, r)."""
        sigma = torch.linalg.svdvals(W)
        lam = sigma[:, [0, -1]].square()
        gap = 100 * (lam - found.square()).abs() / (lam[:, :1] - lam[:, 1:])
        cond, stale = (
            on_vectors(W, vectors, lambda sigma: rho_cond_slopes(sigma, spec.eps))
            for vectors in (vectors, self.before[layer])
        )
        truth = exact_penalty(W, replace(spec, alpha2=0.0)).gradient.flatten(1)
        self.seen["κ"].append(sigma[:, 0] / sigma[:, -1])
        self.seen["σ_min found ÷ true"].append(found[:, 1] / sigma[:, -1])
        self.seen["σ_max true ÷ found"].append(sigma[:, 0] / found[:, 0])
        self.seen["gap at the high edge, %"].append(gap[:, 0])
        self.seen["gap at the low edge, %"].append(gap[:, 1])
        self.seen["1 − cosine of ∇ρ_cond"].append(1 - nn.functional.cosine_similarity(cond, truth))
        self.seen["the same by the edges of the evaluation before"].append(
            1 - nn.functional.cosine_similarity(stale, truth)
        )
        of_evaluations = zip(*self.gradients[layer], strict=True)
        (on_edges, rest), (true_on_edges, true_rest) = (
            [torch.stack(part).mean(0) for part in zip(*parts, strict=True)] for parts in of_evaluations
        )
        for name, gradient in {
            f"1 − cosine of ∇ρ_moment, mean of {AVERAGED} evaluations": on_edges + rest,
            "the same with the exact edges": true_on_edges + rest,
            "the same with the exact rest": on_edges + true_rest,
        }.items():
            self.seen[name].append(1 - nn.functional.cosine_similarity(gradient, true_on_edges + true_rest))

    def print(self) -> None:
        levels = torch.tensor(LEVELS, dtype=torch.float64)
        print("| | " + " | ".join(f"{100 * level:g} %" for level in LEVELS) + " |\n|" + "---|" * (len(LEVELS) + 1))
        for name, values in self.seen.items():
            print(f"| {name} | " + " | ".join(f"{q:.4g}" for q in torch.cat(values).quantile(levels)) + " |")
        print(f"layers computed another way: {self.fallbacks} of {self.layers}")


def edge_vectors(found: LayerPenalty, i: int) -> Tensor:
    """The unit rows, (1, 2, r), that the i-th layer's gradient was made with."""
    assert found.left is not None
    assert found.right is not None
    wide = found.left.shape[1] < found.right.shape[2]
    return (found.left.mT if wide else found.right)[i : i + 1].double()


def on_vectors(W: Tensor, V: Tensor, slopes_at: Callable[[Tensor], Tensor]) -> Tensor:
    """Σ slope · u vᵀ, (1, m·n), by two unit rows V (1, 2, r) of the short side; slopes by σ (1, 2)."""
    wide = W.shape[1] < W.shape[2]
    Y = V @ (W if wide else W.mT)
    sigma = Y.norm(dim=-1)
    U = Y / sigma.unsqueeze(-1) * slopes_at(sigma).unsqueeze(-1)
    return ((V.mT @ U) if wide else (U.mT @ V)).flatten(1)


def exact_parts(W: Tensor, spec: PenaltySpec) -> Parts:
    U, sigma, Vh = torch.linalg.svd(W, full_matrices=False)
    ends = sigma[:, [0, -1]]
    norm = normalisation(ends.numpy(), (W.shape[1], W.shape[2]), spec)
    x = (sigma.square() - torch.from_numpy(norm.c)[:, None]) / torch.from_numpy(norm.d)[:, None]
    traces = chebyshev(x, spec.K)[0].sum(-1).mT.numpy()
    through = torch.from_numpy(slopes(traces, norm, spec, polynomial_moments(traces, norm, spec)[0]).through)
    on_edges = (U[:, :, [0, -1]] * (ends * through).unsqueeze(1)) @ Vh[:, [0, -1]]
    whole = exact_penalty(W, replace(spec, alpha1=0.0)).gradient
    return on_edges.flatten(1), (whole - on_edges).flatten(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", default="auto", choices=[name for name in ENGINES if name in ("auto", "staggered")])
    parser.add_argument("--refresh", type=int, default=REFRESH)
    parser.add_argument("--turns", type=int, help="steps from one evaluation of a layer to the next")
    parser.add_argument("--degree", type=int, help="of the filter at the edges, the engine's `steps`")
    parser.add_argument("--steps", type=int, default=4690)
    parser.add_argument("--every", type=int, default=40, help="look at every so many-th evaluation")
    parser.add_argument("--kappa", type=float, help="start from layers with this κ and gain 1 instead")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)

    data = mnist()
    generator = torch.Generator().manual_seed(arguments.seed)
    model = MLP((1, 28, 28), 10)
    if arguments.kappa is None:
        orthogonal_(model, generator, gain=0.06)
    else:
        prescribed_kappa_(model, generator, kappa=arguments.kappa)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    engine = {
        "name": arguments.engine,
        "refresh": arguments.refresh,
        "steps": arguments.degree,
        "turns": arguments.turns,
    }
    cmr = CMR(model, engine=engine, warmup=2, steps_per_epoch=len(data.train_x) // 64, seed=arguments.seed)
    watch = Watch(cmr, arguments.every)
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
