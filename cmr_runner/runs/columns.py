"""The contract of a run directory: the names of its files, and every column of its tables with its meaning.

Both trunks write and read by these names. A new number per epoch is declared here, and nowhere else.
"""

import re
from dataclasses import dataclass
from typing import Any

RUN_FILE = "run.json"
METRICS = "metrics.csv"
LAYERS = "layers.csv"
SPECTRA = "spectra.csv"
CHECKPOINT = "checkpoint.pt"
PREVIOUS_CHECKPOINT = "checkpoint.prev.pt"
MODEL = "model.pt"
NOTES = ".hydra"
# What a reader of results opens.
TABLES = (METRICS, LAYERS, SPECTRA)


@dataclass(frozen=True)
class Column:
    """`always` says that every new run has it; `wall_clock` that two equal runs differ in it."""

    name: str
    meaning: str
    always: bool = True
    wall_clock: bool = False


METRICS_TABLE = (
    Column("epoch", "epochs trained so far; 0 is before training"),
    Column("step", "optimiser steps so far"),
    Column("train_loss", "task loss, mean over the epoch's steps"),
    Column("test_loss", "task loss on the test set"),
    Column("test_accuracy", "fraction of the test set classified correctly"),
    Column("grad_norm", "norm of the whole gradient before the clip, mean over the epoch's steps"),
    Column("grad_norm_task", "norm of the task's gradient, mean over the epoch's steps"),
    Column("grad_norm_spec", "norm of the spectral gradient as added (after λ_t and cap), mean over the epoch's steps"),
    Column("kappa_mean", "κ(W), mean over the regularised layers"),
    Column("kappa_median", "κ(W), median over the regularised layers"),
    Column("kappa_p90", "κ(W), 90th percentile over the regularised layers"),
    Column("kappa_max", "κ(W), largest of the regularised layers"),
    Column("kappa_gram_mean", "κ(G) = κ(W)², mean over the regularised layers"),
    Column("kappa_gram_median", "κ(G), median over the regularised layers"),
    Column("kappa_gram_p90", "κ(G), 90th percentile over the regularised layers"),
    Column("max_abs_moment", "largest |s_k|, k ≥ 3, of any regularised layer"),
    Column("mean_abs_moment", "each layer's largest |s_k|, k ≥ 3, mean over the regularised layers"),
    Column("rho_cond_mean", "ρ_cond, mean over the regularised layers"),
    Column("rho_moment_mean", "ρ_moment, mean over the regularised layers"),
    Column("lambda_t", "the penalty's weight at the epoch's last step (warm-up included)"),
    Column("cap_active_fraction", "fraction of the epoch's steps at which the cap ρ_spec acted"),
    Column("clip_active_fraction", "fraction of the epoch's steps at which the global clip acted"),
    Column("skipped_layers", "layers left out of a step because no decomposition succeeded, total over the epoch"),
    Column("seconds", "wall-clock time of the epoch, evaluation included", wall_clock=True),
    Column("spectral_seconds", "wall-clock time of the epoch spent in the regulariser", wall_clock=True),
    Column("val_loss", "task loss on the validation part of the training set", always=False),
    Column("val_accuracy", "fraction of the validation part classified correctly", always=False),
    Column("test_perplexity", "exp(test_loss), where the task is the next token", always=False),
    Column("val_perplexity", "exp(val_loss), where the task is the next token", always=False),
    Column("task", "which task of a stream the epoch trained on, from 0", always=False),
    Column("lr", "learning rate of the first parameter group at the epoch's last step", always=False),
    Column("fallbacks", "layers computed again after failing the engine's check, total over the epoch", always=False),
    Column("weight_k", "learned weight of moment s_k, one column per k (cmr_learned)", always=False),
    Column("jacobian_kappa", "κ(J) of the input-output Jacobian, geometric mean over inputs", always=False),
    Column("jacobian_kappa_bound", "the bound on κ(J) by the layers' κ, geometric mean over inputs", always=False),
)

LAYERS_TABLE = (
    Column("epoch", "epochs trained so far; 0 is before training"),
    Column("layer", "name of the weight"),
    Column("rows", "rows of the weight as a matrix"),
    Column("cols", "columns of the weight as a matrix"),
    Column("kappa", "κ(W) = σ_max ÷ σ_min, float64"),
    Column("sigma_max", "largest singular value"),
    Column("sigma_min", "smallest of the min(rows, cols) singular values"),
    Column("stable_rank", "‖W‖_F² ÷ σ_max²"),
    Column("rho_cond", "ρ_cond(W)"),
    Column("rho_moment", "ρ_moment(W)"),
    Column("s_k", "Chebyshev moment s_k, one column per k = 3 … K"),
    Column("grad_h", "‖∂L/∂h‖ at the layer's output before the activation, mean over inputs", always=False),
    Column("grad_h_bound", "the bound on ‖∂L/∂h‖ by the layers behind it", always=False),
)

SPECTRA_TABLE = (
    Column("epoch", "0 (before training) and the newest epoch; every epoch under spectra=all"),
    Column("layer", "name of the weight"),
    Column("percentile", "of the layer's singular values, 0 to 100 in steps of 2.5"),
    Column("sigma", "the singular value at that percentile"),
)

METRICS_COLUMNS = tuple(column.name for column in METRICS_TABLE if column.always)
TIME_COLUMNS = tuple(column.name for column in METRICS_TABLE if column.wall_clock)
# All other columns hold numbers.
TEXT_COLUMNS = frozenset({"layer"})


def declared_name(name: str) -> str:
    """The name under which a column is declared: `weight_k` for weight_3, `s_k` for s_4."""
    return re.sub(r"_\d+$", "_k", name)


def in_column_order(row: dict[str, Any]) -> dict[str, Any]:
    """A row of metrics.csv in the order declared here; columns that a plug-in adds under its own names follow."""
    if missing := [name for name in METRICS_COLUMNS if name not in row]:
        raise ValueError(f"{METRICS}: the row has no {', '.join(missing)}")
    place = {column.name: i for i, column in enumerate(METRICS_TABLE)}
    return dict(sorted(row.items(), key=lambda item: place.get(declared_name(item[0]), len(place))))
