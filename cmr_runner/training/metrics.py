"""From steps and spectra to the rows of metrics.csv, layers.csv and spectra.csv."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cmr_runner.distributed import Ranks
from cmr_runner.regularizers.analysis import layer_rows
from cmr_runner.regularizers.base import Regularizer

Row = dict[str, Any]

PERCENTILES = [2.5 * i for i in range(41)]  # of a layer's singular values, in spectra.csv


class EpochTotals:
    """Sums over an epoch's steps, kept on the device so that no step waits for a number."""

    NAMES = ("train_loss", "grad_norm", "grad_norm_task", "grad_norm_spec", "cap_active", "clip_active")

    def __init__(self, device: torch.device) -> None:
        self.sums = torch.zeros(len(self.NAMES), dtype=torch.float64, device=device)
        self.steps = 0
        self.skipped_layers = self.fallbacks = 0
        self.lambda_t = 0.0

    def add(self, loss: Tensor, norm: Tensor, clipped: Tensor, regularizer: Regularizer) -> None:
        last = regularizer.last
        zero = torch.zeros_like(loss)
        task, spec, capped = (norm, zero, zero) if last is None else (last.norm_task, last.norm_spec, last.cap < 1)
        self.sums += torch.stack([loss, norm, task, spec, capped.to(loss), clipped.to(loss)])
        self.steps += 1
        if last is not None:
            self.skipped_layers += last.skipped
            self.fallbacks += last.fallbacks
            self.lambda_t = last.lambda_t

    def sum_losses(self, ranks: Ranks) -> None:
        """Each process saw its part of the loss; all else they have in common."""
        self.sums[:1] = ranks.sum_(self.sums[:1].clone())

    @property
    def finite(self) -> bool:
        return bool(torch.isfinite(self.sums).all())

    def means(self) -> Row:
        mean = dict(zip(self.NAMES, (self.sums / max(self.steps, 1)).tolist(), strict=True))
        return {
            "train_loss": mean["train_loss"],
            "grad_norm": mean["grad_norm"],
            "grad_norm_task": mean["grad_norm_task"],
            "grad_norm_spec": mean["grad_norm_spec"],
            "lambda_t": self.lambda_t,
            "cap_active_fraction": mean["cap_active"],
            "clip_active_fraction": mean["clip_active"],
            "skipped_layers": self.skipped_layers,
            "fallbacks": self.fallbacks,
        }


BEFORE_TRAINING: Row = {
    "train_loss": None,
    "grad_norm": None,
    "grad_norm_task": None,
    "grad_norm_spec": None,
    "lambda_t": None,
    "cap_active_fraction": None,
    "clip_active_fraction": None,
    "skipped_layers": 0,
    "fallbacks": 0,
}


def spectral_figures(regularizer: Regularizer) -> tuple[Row, list[Row], list[Row]]:
    """Exact spectra now: numbers over the layers, one row per layer, and the percentiles of each layer's σ."""
    rows, sigmas = layer_rows(regularizer.layers, regularizer.measure)
    spectra = [
        {"layer": row["layer"], "percentile": percentile, "sigma": value}
        for row, sigma in zip(rows, sigmas, strict=True)
        for percentile, value in zip(PERCENTILES, _percentiles(sigma), strict=True)
    ]
    return _over_layers(rows), rows, spectra


def _over_layers(rows: list[Row]) -> Row:
    """Arithmetic mean, median and linear-interpolated 90th percentile over the layers; nan if any layer is."""
    if not rows:
        return dict.fromkeys(
            [f"kappa_{name}" for name in ("mean", "median", "p90", "max", "gram_mean", "gram_median", "gram_p90")]
            + ["max_abs_moment", "mean_abs_moment", "rho_cond_mean", "rho_moment_mean"]
        )
    kappa = _column(rows, "kappa")
    gram = kappa.square()
    moment_names = [name for name in rows[0] if name.startswith("s_")]
    largest = torch.stack([_column(rows, name).abs() for name in moment_names]).amax(0)  # (layers,)
    return {
        "kappa_mean": float(kappa.mean()),
        "kappa_median": _quantile(kappa, 0.5),
        "kappa_p90": _quantile(kappa, 0.9),
        "kappa_max": float(kappa.max()),
        "kappa_gram_mean": float(gram.mean()),
        "kappa_gram_median": _quantile(gram, 0.5),
        "kappa_gram_p90": _quantile(gram, 0.9),
        "max_abs_moment": float(largest.max()),
        "mean_abs_moment": float(largest.mean()),
        "rho_cond_mean": float(_column(rows, "rho_cond").mean()),
        "rho_moment_mean": float(_column(rows, "rho_moment").mean()),
    }


def _column(rows: list[Row], name: str) -> Tensor:
    return torch.tensor([row[name] for row in rows], dtype=torch.float64)


def _quantile(values: Tensor, q: float) -> float:
    if torch.isinf(values).any():  # interpolating next to inf would give inf − inf
        return float(torch.quantile(values, q, interpolation="higher"))
    return float(torch.quantile(values, q))


def _percentiles(sigma: Tensor) -> list[float]:
    quantiles = torch.tensor(PERCENTILES, dtype=sigma.dtype) / 100
    return [float(f"{value:.6g}") for value in torch.quantile(sigma, quantiles).tolist()]
