"""How good the `fast` engine's edges are along a real κ-stress run: Rayleigh gaps against float64, at percentiles.

    python scripts/bench_edges.py --steps 2000 --every 20 [--lanczos 64]

The run is the paper's (MNIST, 15 × 256 tanh, orthogonal × 0.06, Adam 1e-3, batch 64, λ = 0.02, warm-up of 2 epochs).
Gap of a unit vector x at the high edge: (λ_max − ‖Wx‖²)/(λ_max − λ_min); at the low edge (‖Wx‖² − λ_min)/(same).
Also the cosine of the penalty's whole gradient with that of `exact`, which a vector from a dense edge can fail.
"""

import argparse

import torch
from torch import Tensor, nn

from cmr_runner.data.mnist import mnist
from cmr_runner.inits import orthogonal_
from cmr_runner.models import MLP
from cmr_runner.regularizers import CMR
from cmr_runner.spectral import singular_values
from cmr_runner.spectral.engines.exact import ExactEngine
from cmr_runner.spectral.engines.fast import STEPS, FastEngine


def gaps(W: Tensor, V: Tensor) -> Tensor:
    """(B, 2) Rayleigh gaps of the edge vectors V (B, 2, r) of W (B, m, n)."""
    lam = singular_values(W).square()
    tall = W if W.shape[1] >= W.shape[2] else W.mT
    theta = (V.double() @ tall.double().mT).square().sum(-1)
    spread = lam[:, 0] - lam[:, -1]
    return torch.stack([(lam[:, 0] - theta[:, 0]) / spread, (theta[:, 1] - lam[:, -1]) / spread], -1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--every", type=int, default=20, help="look at every so many-th step")
    parser.add_argument("--lanczos", type=int, default=STEPS, help="Lanczos steps of the engine")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)

    data = mnist()
    generator = torch.Generator().manual_seed(arguments.seed)
    model = MLP((1, 28, 28), 10)
    orthogonal_(model, generator, gain=0.06)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    cmr = CMR(model, engine="fast", warmup=2, steps_per_epoch=len(data.train_x) // 64, seed=arguments.seed)
    cmr.engine = FastEngine(seed=arguments.seed, steps=arguments.lanczos)
    exact = ExactEngine()
    seen, kappas, ratios, cosines, fallbacks = [], [], [], [], 0

    measure = cmr.engine.penalty

    def watched(W: Tensor, spec, *, group: str, step: int):
        nonlocal fallbacks
        result = measure(W, spec, group=group, step=step)
        fallbacks += result.fallbacks
        if step and step % arguments.every == 0 and min(W.shape[1:]) > cmr.engine.steps:
            seen.append(gaps(W, cmr.engine.warm.vectors(group)))
            sigma = singular_values(W)
            kappas.append(sigma[:, 0] / sigma[:, -1])
            ratios.append(result.sigma_min.double() / sigma[:, -1])
            gradients = (found.gradient.double().flatten(1) for found in (result, exact.penalty(W, spec)))
            cosines.append(nn.functional.cosine_similarity(*gradients))
        return result

    cmr.engine.penalty = watched
    for step in range(arguments.steps):
        batch = torch.randint(len(data.train_x), (64,), generator=generator)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(data.train_x[batch]), data.train_y[batch])
        loss.backward()
        cmr.add_gradients()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        if step % (10 * arguments.every) == 0 and kappas:
            print(f"step {step}: loss {loss.item():.3f}, median κ {kappas[-1].median():.2f}", flush=True)

    levels = torch.tensor([0.5, 0.95, 0.99, 1.0], dtype=torch.float64)
    for name, column in zip(("high", "low"), torch.cat(seen).unbind(-1), strict=True):
        print(f"{name} edge, gap in %, at 50/95/99/100 %:", [f"{100 * q:.3f}" for q in column.quantile(levels)])
    print("κ at 50/95/99/100 %:", [f"{q:.2f}" for q in torch.cat(kappas).quantile(levels)])
    print("σ_min found / true, at 50/95/99/100 %:", [f"{q:.4f}" for q in torch.cat(ratios).quantile(levels)])
    print("cosine with exact, at 50/5/1/0 %:", [f"{q:.4f}" for q in torch.cat(cosines).quantile(1 - levels)])
    print("layers computed exactly instead:", fallbacks, "of", arguments.steps * 14)


if __name__ == "__main__":
    main()
