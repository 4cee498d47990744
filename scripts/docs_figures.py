"""Draw the figures of README and docs again, from the committed runs.

python scripts/docs_figures.py [--out docs/figures]
"""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from cmr_runner.commands.plot import main as plot

ROOT = Path(__file__).resolve().parents[1]
# File in docs/figures → the kind of picture, and which one of those that cmr-plot draws.
FIGURES = {
    "kappa_stress": ("main", "kappa_stress/main"),
    "kappa_stress_scale": ("scale", "kappa_stress/scale"),
    "kappa_stress_spectra": ("spectra", "kappa_stress/spectra"),
    "kappa_stress_layers": ("layers", "kappa_stress/layers"),
    "accuracy_bars": ("baselines", "standard_baselines/accuracy_bars"),
    "kappa_gram_median": ("baselines", "standard_baselines/kappa_gram_median"),
    "kappa_gram_p90": ("baselines", "standard_baselines/kappa_gram_p90"),
    "diagnostics": ("diagnostics", "diagnostics/diagnostics"),
    "prescribed_kappa": ("curves", "prescribed_kappa/curves"),
    "rivals": ("comparison", "rivals/comparison"),
    "rivals_time": ("time", "rivals/time"),
    "rivals_tradeoff": ("tradeoff", "rivals/tradeoff"),
    "sweep_lambda_rho": ("sweep", "sweep_lambda_rho/sweep"),
    "sweep_lambda": ("curves", "sweep_lambda/curves"),
    "sweep_lambda_activity": ("activity", "sweep_lambda/activity"),
    "sweep_lambda_dependence": ("dependence", "sweep_lambda/dependence-lam"),
    "ablation_mixing": ("curves", "ablation_mixing/curves"),
    "plasticity_tasks": ("tasks", "plasticity/tasks"),
    "cifar_plain": ("comparison", "cifar_plain/comparison"),
    "cifar_resnet": ("comparison", "cifar_resnet/comparison"),
    "cifar_vit_kinds": ("kinds", "cifar_vit/kinds"),
    "char_gpt": ("comparison", "char_gpt/comparison"),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "figures")
    out = parser.parse_args().out
    experiments = sorted({picture.split("/")[0] for _, picture in FIGURES.values()})
    kinds = sorted({kind for kind, _ in FIGURES.values()})
    with tempfile.TemporaryDirectory() as scratch:
        words = ["--only", ",".join(kinds), "--filter", f"experiment={','.join(experiments)}", "--out", scratch]
        if code := plot([str(ROOT / "outputs"), *words]):
            return code
        out.mkdir(parents=True, exist_ok=True)
        for name, (_, picture) in FIGURES.items():
            shutil.copyfile(Path(scratch, f"{picture}.png"), out / f"{name}.png")
    print(f"{len(FIGURES)} figures in {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
