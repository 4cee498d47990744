"""CMR in a plain loop on a network from elsewhere: torchvision's resnet18 on synthetic images.

    python scripts/examples/torchvision_resnet.py

The lines that matter are marked with <--.
"""

import time

import torch
from torch.nn.functional import cross_entropy

from cmr_runner import CMR, analyze  # <--
from cmr_runner.data.torchvision_import import import_torchvision

STEPS, BATCH, CLASSES = 2, 8, 10


def main() -> None:
    import_torchvision()
    from torchvision.models import resnet18

    torch.manual_seed(0)
    model = resnet18(num_classes=CLASSES)
    images, labels = torch.randn(BATCH, 3, 32, 32), torch.randint(CLASSES, (BATCH,))
    cmr = CMR(model, lam=0.02)  # <-- once
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    before = analyze(model)  # <-- one row per layer: shape, κ, σ_max, σ_min, stable rank, ρ_cond, s_k
    for step in range(STEPS):
        began = time.perf_counter()
        optimizer.zero_grad()
        loss = cross_entropy(model(images), labels)
        loss.backward()
        cmr.add_gradients()  # <-- after backward (and after GradScaler.unscale_), before clip and optimiser
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        last = cmr.last
        assert last is not None
        print(
            f"step {step}  loss {loss.item():.3f}  ‖g_task‖ {last.norm_task:.3f}  ‖g̃_spec‖ {last.norm_spec:.3f}  "
            f"cap {last.cap:.2f}  mean κ {last.kappa.mean():.2f}  {time.perf_counter() - began:.2f} s"
        )
    after = analyze(model)
    table = after[["layer", "rows", "cols", "kappa", "stable_rank"]].assign(kappa_before=before["kappa"])
    print(table.to_string(index=False, float_format=lambda value: f"{value:.3g}"))
    print(f"{len(table)} layers, mean κ {before['kappa'].mean():.3g} -> {after['kappa'].mean():.3g}")


if __name__ == "__main__":
    main()
