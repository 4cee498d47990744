"""A convolution's singular values by Fourier transform are those of its explicit matrix."""

import pytest
import torch
from torch import nn

from cmr_runner.checks import ArgumentError
from cmr_runner.regularizers import analyze
from cmr_runner.spectral.convolution import operator_singular_values

SIZE = 5


def explicit_matrix(conv: nn.Conv2d) -> torch.Tensor:
    """(out · SIZE², in · SIZE²): column j is what the layer makes of the j-th unit image."""
    units = torch.eye(conv.in_channels * SIZE**2, dtype=torch.float64).reshape(-1, conv.in_channels, SIZE, SIZE)
    with torch.no_grad():
        return conv(units).flatten(1).T


@pytest.mark.parametrize(("n_in", "n_out", "kernel"), [(3, 2, 3), (2, 4, 3), (3, 3, 1), (2, 3, 5)])
def test_operator_has_the_singular_values_of_the_explicit_circular_matrix(n_in: int, n_out: int, kernel: int) -> None:
    torch.manual_seed(0)
    conv = nn.Conv2d(n_in, n_out, kernel, padding=kernel // 2, padding_mode="circular", bias=False).double()
    expected = torch.linalg.svdvals(explicit_matrix(conv))
    found = operator_singular_values(conv.weight.detach(), SIZE)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    row = analyze(conv, conv="operator", conv_size=SIZE).iloc[0]
    assert (row["rows"], row["cols"]) == (n_out * SIZE**2, n_in * SIZE**2)
    assert row["sigma_max"] == pytest.approx(float(expected[0]))
    assert row["kappa"] == pytest.approx(float(expected[0] / expected[-1]))


def test_a_strided_or_grouped_convolution_and_a_linear_layer_stay_as_they_are() -> None:
    torch.manual_seed(0)
    strided = [nn.Conv2d(4, 4, 3, stride=2), nn.ConvTranspose2d(4, 4, 3, stride=2)]
    model = nn.Sequential(*strided, nn.Conv2d(4, 4, 3, groups=2), nn.Linear(3, 3))
    assert analyze(model, conv="operator").equals(analyze(model))


def test_images_smaller_than_the_kernel_are_refused() -> None:
    with pytest.raises(ArgumentError, match="size must be an integer >= 3, got 2"):
        operator_singular_values(torch.zeros(1, 1, 3, 3), 2)
