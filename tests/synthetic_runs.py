"""Run directories as cmr-run writes them, with made-up but plausible numbers, for tests of figures and reports."""

import csv
import hashlib
import json
import math
from pathlib import Path

import numpy as np

from cmr_runner.runs import columns

LAYER_COLUMNS = [
    name for c in columns.LAYERS_TABLE if c.always for name in (["s_3", "s_4", "s_5"] if c.name == "s_k" else [c.name])
]
CMR = {"lam": 0.02, "rho_spec": 0.5, "alpha1": 1.0, "alpha2": 0.1, "beta": 0.15, "K": 5, "mixing": "penalty_cap"}
# Final accuracy and κ(W) that a method tends to, by kind of start.
TARGETS = {
    "kappa_stress": {"none": (0.10, 4e3), "cmr": (0.88, 3.3)},
    "glorot": {
        "none": (0.954, 4.8e3),
        "l2": (0.953, 2.1e3),
        "spectral_norm": (0.948, 900.0),
        "cmr": (0.956, 2.6),
        "spectral_norm_cmr": (0.951, 2.4),
        "orthogonality": (0.952, 6.0),
    },
}


def write_run(
    root: Path,
    experiment: str = "kappa_stress",
    method: str = "cmr",
    *,
    seed: int = 0,
    epochs: int = 5,
    init: str = "kappa_stress",
    status: str = "completed",
    rows: int | None = None,
    layers: int = 15,
    options: dict | None = None,
    lr: float = 1e-3,
    target: tuple[float, float] | None = None,
    diagnostics: bool = False,
    name: str | None = None,
    spectra: str = "ends",
    text: bool = False,
) -> Path:
    """One run directory; `rows` cuts it after so many epochs; `spectra` is cmr-run's key; `text` adds the columns of a
    language model."""
    regularizer = {"_target_": f"cmr_runner.regularizers.{method}"}
    regularizer |= (CMR if "cmr" in method else {}) | (options or {})
    config = {
        "seed": seed,
        "regularizer": regularizer,
        "optimizer": {"_target_": "torch.optim.Adam", "lr": lr},
        "trainer": {"epochs": epochs, "batch_size": 64},
        "model": {"_target_": "cmr_runner.models.mlp", "width": 256, "depth": 15},
    }
    digest = hashlib.sha256(json.dumps([experiment, init, config], sort_keys=True).encode()).hexdigest()[:8]
    name = name or f"{method}-{init}-seed{seed}"
    folder = root / experiment.replace("/", "_") / f"{name.replace('/', '_')}-{digest}"
    folder.mkdir(parents=True)
    table = _metrics(np.random.default_rng([seed, int(digest, 16)]), method, init, epochs, target, diagnostics)
    if text:
        table = [row | _text_columns(row) for row in table]
    if status == "diverged":
        table[-1] |= {key: math.nan for key in table[-1] if key.startswith(("kappa", "test", "train", "rho"))}
    if rows is not None:
        table = table[:rows]
    _write_csv(folder / columns.METRICS, table)
    _write_csv(folder / columns.LAYERS, list(_layer_rows(table, layers, diagnostics)))
    ends = [table[0], table[-1]] if len(table) > 1 else table
    _write_csv(folder / columns.SPECTRA, list(_spectrum_rows(table if spectra == "all" else ends, layers)))
    record = {
        "status": status,
        "identity": {"hash": digest, "experiment": experiment, "name": name},
        "choices": {
            "model": "mlp",
            "init": init,
            "regularizer": method,
            "optimizer": "adam",
            "dataset": "mnist",
            "trainer": "default",
            "experiment": experiment,
        },
        "config": config,
        "provenance": {
            "git_sha": "0123456789abcdef0123456789abcdef01234567",
            "git_dirty": False,
            "versions": {"python": "3.11.2", "torch": "2.13.0", "cmr_runner": "0.1.0"},
            "host": "box",
            "cpu": "some CPU",
            "threads": 1,
            "device": "cpu",
            "command": f"cmr-run regularizer={method} init={init} seed={seed}",
            "seed": seed,
            "start": "2026-01-01T00:00:00+00:00",
            "end": None if status == "running" else "2026-01-01T00:05:00+00:00",
            "resumes": [],
        },
        "final": (table[-1] | {"epochs": epochs}) if table else None,
        "error": {"kind": "Diverged", "message": "layer 3 is not finite"} if status == "diverged" else None,
    }
    (folder / "run.json").write_text(json.dumps(record, indent=2))
    return folder


def write_kappa_stress(root: Path, seeds: int = 5, **kwargs) -> None:
    for method in ("none", "cmr"):
        for seed in range(seeds):
            write_run(root, "kappa_stress", method, seed=seed, **kwargs)


def write_baselines(root: Path, seeds: int = 3, epochs: int = 20, **kwargs) -> None:
    for method in ("none", "l2", "spectral_norm", "cmr", "spectral_norm_cmr"):
        for seed in range(seeds):
            write_run(root, "standard_baselines", method, seed=seed, epochs=epochs, init="glorot_uniform", **kwargs)


def write_sweep(root: Path, seeds: int = 2, **kwargs) -> None:
    for lam in (0.002, 0.01, 0.02, 0.1):
        for rho in (0.1, 0.5, 1.0):
            reach = math.exp(-abs(math.log(lam / 0.02)) / 2 - abs(math.log(rho / 0.5)) / 2)
            for seed in range(seeds):
                write_run(
                    root,
                    "sweep",
                    "cmr",
                    seed=seed,
                    options={"lam": lam, "rho_spec": rho},
                    target=(0.1 + 0.8 * reach, 3.0 / reach**3),
                    **kwargs,
                )


def write_all(root: Path) -> None:
    """A project's outputs: the paper's two experiments, a sweep, ablations, rivals; one run diverged, one going on."""
    write_kappa_stress(root, diagnostics=True)
    write_baselines(root)
    write_sweep(root)
    for method in ("none", "cmr", "orthogonality", "l2"):
        for seed in range(3):
            write_run(root, "rivals", method, seed=seed, epochs=10, init="glorot_uniform", layers=4)
    for label, options, target in (
        ("full", {}, (0.88, 3.2)),
        ("condition only", {"alpha2": 0.0}, (0.85, 3.4)),
        ("moments only", {"alpha1": 0.0}, (0.3, 90.0)),
    ):
        for seed in range(3):
            write_run(root, "ablation", "cmr", seed=seed, options=options, target=target, name=f"{label} {seed}")
    write_run(root, "kappa_stress", "none", seed=9, status="diverged", rows=None)
    write_run(root, "kappa_stress", "cmr", seed=9, status="running", rows=3)


def _metrics(rng, method, init, epochs, target, diagnostics) -> list[dict]:
    stressed = init == "kappa_stress"
    kind = TARGETS["kappa_stress" if stressed else "glorot"]
    accuracy, kappa = target or kind.get(method, (0.94, 50.0))
    start = 1.0 if stressed else 600.0
    accuracy = float(np.clip(accuracy + rng.normal(0, 0.02 if stressed and accuracy > 0.2 else 0.002), 0, 1))
    onset = rng.uniform(1.2, 2.2) if stressed else 0.0
    spectral = "cmr" in method
    rows = []
    for epoch in range(epochs + 1):
        grown = 1 / (1 + math.exp(-4 * (epoch - onset))) if stressed else 1 - math.exp(-2.0 * epoch)
        acc = 0.098 + (accuracy - 0.098) * grown + rng.normal(0, 0.002)
        pull = (1 - math.exp(-epoch)) if spectral else (1 - math.exp(-epoch / 8 if not stressed else -2 * epoch))
        k = math.exp(
            math.log(start) + (math.log(kappa) - math.log(start)) * pull + (rng.normal(0, 0.15) if epoch else 0)
        )
        k = max(k, 1.0)
        task = (2.3 if spectral else 1.1) * math.exp(rng.normal(0, 0.1))
        spec = task * 0.45 if spectral else 0.0
        moment = 0.4 if spectral and epoch else 0.88
        values = dict.fromkeys(columns.METRICS_COLUMNS, 0.0) | {
            "epoch": epoch,
            "step": 938 * epoch,
            "train_loss": 2.3 * (1 - 0.9 * acc) if epoch else "",
            "test_loss": 2.3 * (1 - 0.9 * acc),
            "test_accuracy": acc,
            "grad_norm": math.hypot(task, spec) if epoch else "",
            "grad_norm_task": task if epoch else "",
            "grad_norm_spec": spec if epoch else "",
            "kappa_mean": k,
            "kappa_median": max(0.8 * k, 1),
            "kappa_p90": 2 * k,
            "kappa_max": 4 * k,
            "kappa_gram_mean": k**2 * 2,
            "kappa_gram_median": max(0.8 * k, 1) ** 2,
            "kappa_gram_p90": (2 * k) ** 2,
            "max_abs_moment": min(1.0, moment * 1.1 + abs(rng.normal(0, 0.02))),
            "mean_abs_moment": moment + rng.normal(0, 0.01),
            "lambda_t": 0.02 * min(1, epoch / 2) if spectral else 0.0,
            "cap_active_fraction": 0.9 * math.exp(-epoch / 3) if spectral and epoch else 0.0,
            "clip_active_fraction": 0.02 if epoch else 0.0,
            "seconds": 9.0 + (6.0 if spectral else 0.0),
            "spectral_seconds": 6.0 if spectral else 0.0,
        }
        if diagnostics:
            values |= {"jacobian_kappa": k**2, "jacobian_kappa_bound": k**5}
        if method == "cmr_learned":
            values |= {"weight_3": 1.0 + epoch / 10, "weight_4": 1.16, "weight_5": 1.35 - epoch / 20}
        rows.append(values)
    return rows


def _text_columns(row) -> dict:
    loss = row["test_loss"]
    validation = {"val_loss": 1.1 * loss, "val_accuracy": 0.9 * row["test_accuracy"]}
    return validation | {"test_perplexity": math.exp(loss), "val_perplexity": math.exp(1.1 * loss), "lr": 1e-3}


def _layer_rows(table, layers, diagnostics):
    for row in table:
        for layer in range(layers):
            kappa = 1 + (row["kappa_mean"] - 1) * (0.4 + 1.2 * layer / max(layers - 1, 1))
            values = dict.fromkeys(LAYER_COLUMNS, 0.0) | {
                "epoch": row["epoch"],
                "layer": f"layers.{2 * layer}",
                "rows": 256,
                "cols": 256,
                "kappa": kappa,
                "sigma_max": 1.2,
                "sigma_min": 1.2 / kappa,
                "stable_rank": 100.0,
            }
            if diagnostics:
                values |= {"grad_h": 0.01 * 1.3 ** (layer - layers), "grad_h_bound": 0.01 * 1.1**layer}
            yield values


def _spectrum_rows(table, layers):
    for row in table:
        for layer in range(layers):
            kappa = 1 + (row["kappa_mean"] - 1) * (0.4 + 1.2 * layer / max(layers - 1, 1))
            for percentile in np.linspace(0, 100, 41):
                sigma = 1.2 * kappa ** ((percentile / 100) ** 0.5 - 1)
                yield {"epoch": row["epoch"], "layer": f"layers.{2 * layer}", "percentile": percentile, "sigma": sigma}


def _write_csv(path: Path, rows: list[dict]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        if rows:
            writer = csv.DictWriter(file, rows[0], lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
