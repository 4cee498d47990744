"""The spectra of a model's layers as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from cmr_runner.regularizers.layers import Layer, LayerRule, all_matrices, reasons_left_out
from cmr_runner.spectral import (
    NonFiniteError,
    PenaltySpec,
    condition_number,
    moments,
    rho_cond,
    rho_moment,
    singular_values,
    stable_rank,
)
from cmr_runner.spectral.moments import GramReading

if TYPE_CHECKING:
    from cmr_runner.regularizers.spectral_table import SpectralTable


def analyze(
    model: nn.Module,
    *,
    layers: LayerRule | None = None,
    K: int = 5,
    eps: float = 1e-6,
    beta: float = 0.15,
    gram: GramReading = "short_side",
) -> SpectralTable:
    """A DataFrame, one row per layer: layer, rows, cols, kappa, sigma_max, sigma_min, stable_rank, rho_cond,
    rho_moment, s_3 ... s_K. Exact, in float64, of the effective weights. A layer that is not finite has nan in every
    column.

    Printed, it begins with κ, σ_max and σ_min, marks frozen layers, and ends with the weights that `layers` leaves out
    and why. Frozen layers have rows: whether CMR acts on them is decided at each step.
    """
    from cmr_runner.regularizers.spectral_table import SpectralTable

    matrices = all_matrices(model, layers if layers is not None else LayerRule())
    found = [matrix for matrix in matrices if not matrix.left_out]
    spec = PenaltySpec(K=K, eps=eps, beta=beta, gram=gram)
    rows, _ = layer_rows(found, spec)
    columns = ["layer", "rows", "cols", "kappa", "sigma_max", "sigma_min", "stable_rank", "rho_cond", "rho_moment"]
    return SpectralTable(
        rows,
        [*columns, *(f"s_{k}" for k in range(3, K + 1))],
        frozen=frozenset(layer.name for layer in found if layer.frozen),
        left_out=reasons_left_out(matrices),
    )


def layer_rows(layers: list[Layer], spec: PenaltySpec) -> tuple[list[dict[str, float | int | str]], list[Tensor]]:
    """A row of figures for each layer, and its singular values (all nan where the layer is not finite)."""
    sigmas = [_singular_values_or_nan(layer) for layer in layers]
    return [_row(layer, sigma, spec) for layer, sigma in zip(layers, sigmas, strict=True)], sigmas


def _singular_values_or_nan(layer: Layer) -> Tensor:
    try:
        return singular_values(layer.matrix()).cpu()
    except NonFiniteError:
        return torch.full((min(layer.shape),), torch.nan, dtype=torch.float64)


def _row(layer: Layer, sigma: Tensor, spec: PenaltySpec) -> dict[str, float | int | str]:
    finite = bool(torch.isfinite(sigma).all())
    s = moments(sigma, layer.shape, spec.K, spec.eps, spec.gram)
    figures = {
        "kappa": condition_number(sigma) if finite else sigma[0],
        "sigma_max": sigma[0],
        "sigma_min": sigma[-1],
        "stable_rank": stable_rank(sigma) if finite else sigma[0],
        "rho_cond": rho_cond(sigma, spec.eps),
        "rho_moment": rho_moment(s, spec.w),
        **{f"s_{k}": s[k] for k in range(3, spec.K + 1)},
    }
    rows, cols = layer.shape
    return {"layer": layer.name, "rows": rows, "cols": cols, **{key: float(value) for key, value in figures.items()}}
