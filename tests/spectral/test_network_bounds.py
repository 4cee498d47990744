"""What the spectra of the layers say about a tanh network's Jacobian, on real networks.

f(x) = W_L φ(W_{L−1} ... φ(W_1 x)), D_ℓ = diag φ'(h_ℓ), J = W_L D_{L−1} W_{L−1} ... D_1 W_1. Two slips of the paper are
tested as such: μ_ℓ must be the least slope, not a bound on ‖D_ℓ‖₂, and σ_min(J) is bounded from below, not above.
"""

from itertools import pairwise

import pytest
import torch
from torch import nn

from cmr_runner.spectral import condition_number, singular_values

from .matrices import geometric, orthonormal, with_spectrum


def tanh_network(widths, kappa=3.0, gain=1.2):
    """Linear layers without bias, of the given condition number, with tanh between."""
    layers = []
    for seed, (n, m) in enumerate(pairwise(widths)):
        linear = nn.Linear(n, m, bias=False, dtype=torch.float64)
        with torch.no_grad():
            linear.weight.copy_(with_spectrum(gain * geometric(kappa, min(m, n)), m, n, seed))
        layers += [linear, nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def weights(network):
    return [layer.weight.detach() for layer in network if isinstance(layer, nn.Linear)]


def slopes(network, x):
    """The diagonals of D_1 ... D_{L−1} at x: tanh' = 1 − tanh²."""
    found = []
    for layer in network:
        x = layer(x)
        if isinstance(layer, nn.Tanh):
            found.append((1 - x**2).detach())
    return found


def jacobian(network, x):
    return torch.autograd.functional.jacobian(network, x)


def kappa(A):
    return condition_number(singular_values(A)).item()


def kappa_bound(network, x):
    """Π κ(W_ℓ) · Π L_ℓ/μ_ℓ with the slopes at x."""
    bound = 1.0
    for W in weights(network):
        bound *= kappa(W)
    for D in slopes(network, x):
        bound *= (D.max() / D.min()).item()
    return bound


def inputs(size, count=20):
    return torch.randn(count, size, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def test_jacobian_bound_on_a_square_tanh_network():
    network = tanh_network([6] * 5)
    for x in inputs(6):
        assert kappa(jacobian(network, x)) <= kappa_bound(network, x) * (1 + 1e-9)


@pytest.mark.parametrize("widths", [[12, 8, 8, 5, 3], [3, 5, 8, 8], [9, 6, 3, 6, 9]])
def test_jacobian_bound_while_widths_do_not_grow_and_shrink_again(widths):
    """Narrowing, widening, and a waist: σ_q(AB) >= σ_q(A)σ_q(B) for the q values that exist (docs/numerics.md)."""
    network, waist = tanh_network(widths), min(widths)
    for x in inputs(widths[0]):
        sigma = singular_values(jacobian(network, x))[:waist]
        assert condition_number(sigma).item() <= kappa_bound(network, x) * (1 + 1e-9)


def test_jacobian_bound_fails_for_a_network_that_widens_and_then_narrows():
    """range(W_1) can fall into the kernel of W_2: two layers of κ = 1 with a singular product."""
    network = tanh_network([1, 2, 1], kappa=1.0)
    with torch.no_grad():
        network[0].weight.copy_(torch.tensor([[0.0], [1.0]]))
        network[2].weight.copy_(torch.tensor([[1.0, 0.0]]))
    assert [kappa(W) for W in weights(network)] == [1.0, 1.0]
    assert jacobian(network, inputs(1)[0]).item() == 0


def test_jacobian_bound_is_attained():
    """Diagonal layers with every extreme on the same coordinate: no smaller constant serves."""
    network = tanh_network([2, 2, 2])
    with torch.no_grad():
        network[0].weight.copy_(torch.diag(torch.tensor([1.0, 0.2])))
        network[2].weight.copy_(torch.diag(torch.tensor([2.0, 0.5])))
    x = torch.tensor([0.0, 9.0], dtype=torch.float64)
    assert kappa(jacobian(network, x)) == pytest.approx(kappa_bound(network, x))


def test_jacobian_bound_as_printed_fails_when_mu_bounds_the_norm_of_the_slopes():
    """Printed: μ <= ‖D‖₂ <= L, which lets μ = L = ‖D‖₂; orthogonal layers would then force κ(J) = 1."""
    network = tanh_network([6] * 4, kappa=1.0, gain=1.5)
    x = inputs(6)[0]
    for W in weights(network):
        assert kappa(W) == pytest.approx(1)
    assert kappa(jacobian(network, x)) > 2


def test_jacobian_least_singular_value_is_bounded_from_below_not_above():
    network = tanh_network([6] * 4)
    for x in inputs(6):
        least = singular_values(jacobian(network, x))[-1]
        product = torch.tensor(1.0, dtype=torch.float64)
        for W in weights(network):
            product *= singular_values(W)[-1]
        for D in slopes(network, x):
            product *= D.min()
        assert least > product


# Gradient propagation


def backward_norms(network, x):
    """‖∂L/∂h_ℓ‖ for ℓ = 1..L, h_ℓ the outputs of the linear layers, L a cross-entropy."""
    h, kept = x, []
    for layer in network:
        h = layer(h)
        if isinstance(layer, nn.Linear):
            h.retain_grad()
            kept.append(h)
    nn.functional.cross_entropy(h, torch.tensor(0)).backward()
    return [h.grad.norm() for h in kept]


def factor_norms(network, x):
    """σ_max(J_i), J_i = ∂h_i/∂h_{i−1} = W_i D_{i−1}, for i = 2..L."""
    return [singular_values(W * D)[0] for W, D in zip(weights(network)[1:], slopes(network, x), strict=True)]


@pytest.mark.parametrize("widths", [[6] * 6, [12, 8, 8, 5, 3], [3, 8, 2, 9, 4]])
def test_propagation_bound(widths):
    """Any widths: only submultiplicativity is used."""
    network = tanh_network(widths)
    for x in inputs(widths[0]):
        norms, factors = backward_norms(network, x.requires_grad_()), factor_norms(network, x)
        for layer in range(len(norms)):
            bound = norms[-1]
            for factor in factors[layer:]:
                bound = bound * factor
            assert norms[layer] <= bound * (1 + 1e-12)


def test_propagation_bound_is_attained_with_one_unit_on_the_way():
    """Width 1 inside: every factor acts along the only direction there is, so the bound is an equality."""
    network = tanh_network([1, 1, 1, 1, 2], kappa=1.0)
    x = inputs(1)[0].requires_grad_()
    norms, factors = backward_norms(network, x), factor_norms(network, x)
    assert norms[0].item() == pytest.approx((norms[2] * factors[0] * factors[1]).item())


def test_propagation_better_condition_alone_does_not_shrink_the_factors():
    """κ says nothing about scale, against the paper's implication: orthogonal layers × 3 have κ = 1 and amplify."""
    network = tanh_network([4] * 4, kappa=1.0, gain=3.0)
    x = torch.full((4,), 1e-6, dtype=torch.float64, requires_grad=True)
    norms = backward_norms(network, x)
    assert (norms[0] / norms[-1]).item() == pytest.approx(9, rel=1e-6)
    assert kappa(orthonormal(4, 4, 0)) == pytest.approx(1)
