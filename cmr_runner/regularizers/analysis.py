"""The spectra of a model's layers as a table."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal, get_args

import torch
from torch import Tensor, nn

from cmr_runner.checks import integer, one_of
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
from cmr_runner.spectral.convolution import operator_singular_values
from cmr_runner.spectral.moments import GramReading

if TYPE_CHECKING:
    from cmr_runner.regularizers.spectral_table import SpectralTable

ConvReading = Literal["kernel", "operator"]


def analyze(
    model: nn.Module,
    *,
    layers: LayerRule | None = None,
    K: int = 5,
    eps: float = 1e-6,
    beta: float = 0.15,
    gram: GramReading = "short_side",
    conv: ConvReading = "kernel",
    conv_size: int = 32,
) -> SpectralTable:
    """A DataFrame with one row per layer: layer, rows, cols, kappa, sigma_max, sigma_min, stable_rank, rho_cond,
    rho_moment, s_3 ... s_K. Exact, in float64, of the effective weights. If a layer is not finite, its figures are nan.

    When printed, it begins with κ, σ_max and σ_min, marks frozen layers, and ends with the weights that `layers` leaves
    out and why. Frozen layers have rows, because CMR decides at each step whether a layer trains.

    conv: what is measured of a two-dimensional convolution. `kernel`: the flattened kernel, on which the penalty acts.
    `operator`: the linear map on images of conv_size × conv_size with stride 1 and circular padding; a convolution with
    another stride, groups or dilation is still measured by its kernel.
    """
    from cmr_runner.regularizers.spectral_table import SpectralTable

    matrices = all_matrices(model, layers if layers is not None else LayerRule())
    found = [matrix for matrix in matrices if not matrix.left_out]
    spec = PenaltySpec(K=K, eps=eps, beta=beta, gram=gram)
    one_of("conv", conv, get_args(ConvReading))
    integer("conv_size", conv_size, least=1)
    rows = [
        _operator_row(layer, spec, conv_size)
        if conv == "operator" and _is_operator(layer)
        else layer_rows([layer], spec)[0][0]
        for layer in found
    ]
    columns = ["layer", "rows", "cols", "kappa", "sigma_max", "sigma_min", "stable_rank", "rho_cond", "rho_moment"]
    return SpectralTable(
        rows,
        [*columns, *(f"s_{k}" for k in range(3, K + 1))],
        frozen=frozenset(layer.name for layer in found if layer.frozen),
        left_out=reasons_left_out(matrices),
    )


def layer_rows(layers: list[Layer], spec: PenaltySpec) -> tuple[list[dict[str, float | int | str]], list[Tensor]]:
    """A row of figures for each layer, and its singular values (all nan if the layer is not finite)."""
    sigmas = [_singular_values_or_nan(layer) for layer in layers]
    return [_row(layer, sigma, spec) for layer, sigma in zip(layers, sigmas, strict=True)], sigmas


def _singular_values_or_nan(layer: Layer) -> Tensor:
    try:
        return singular_values(layer.matrix()).cpu()
    except NonFiniteError:
        return torch.full((min(layer.shape),), torch.nan, dtype=torch.float64)


def _is_operator(layer: Layer) -> bool:
    """A state_dict does not hold the stride of a convolution, which is then taken to be 1."""
    weight, module = layer.weight, layer.weight.module
    simple = not isinstance(module, nn.modules.conv._ConvNd) or (
        (module.stride, module.dilation, module.groups) == ((1, 1), (1, 1), 1)
    )
    return simple and len(weight.parts) == 1 and weight.effective().ndim == 4


def _operator_row(layer: Layer, spec: PenaltySpec, size: int) -> dict[str, float | int | str]:
    with torch.no_grad():
        kernel = layer.weight.effective().detach()
    shape = (kernel.shape[0] * size**2, kernel.shape[1] * size**2)
    try:
        sigma = operator_singular_values(kernel, size).cpu()
    except NonFiniteError:
        sigma = torch.full((min(shape),), torch.nan, dtype=torch.float64)
    return _row(replace(layer, shape=shape), sigma, spec)


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
