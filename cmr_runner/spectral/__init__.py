"""Numbers about matrices: torch only, no model, no configuration, no file.

One mathematical object a file: `matrix` (a weight as W), `decomposition` (the SVD), `spectrum` (κ, stable rank),
`condition` (ρ_cond), `moments` (s_k, ρ_moment), `penalty` (their weighted sum), `engines` (ways to compute it).

The notation table, paper symbol -> name -> shape -> function, is in docs/numerics.md, with the derivations. Letters are
the paper's: W (..., m, n), σ_i `sigma` (..., r) descending with r = min(m, n), λ_i `lam` = σ_i². The strength λ of the
whole penalty is no part of this layer.
"""

from cmr_runner.spectral.condition import rho_cond, rho_cond_gradient, rho_cond_slopes
from cmr_runner.spectral.decomposition import DecompositionError, NonFiniteError, svd
from cmr_runner.spectral.matrix import as_matrix
from cmr_runner.spectral.moments import (
    chebyshev,
    moment_gradient,
    moment_weights,
    moments,
    rho_moment,
    rho_moment_gradient,
)
from cmr_runner.spectral.penalty import LayerPenalty, PenaltySpec, layer_penalty, penalty_from_svd
from cmr_runner.spectral.spectrum import condition_number, singular_values, stable_rank

__all__ = [
    "DecompositionError",
    "LayerPenalty",
    "NonFiniteError",
    "PenaltySpec",
    "as_matrix",
    "chebyshev",
    "condition_number",
    "layer_penalty",
    "moment_gradient",
    "moment_weights",
    "moments",
    "penalty_from_svd",
    "rho_cond",
    "rho_cond_gradient",
    "rho_cond_slopes",
    "rho_moment",
    "rho_moment_gradient",
    "singular_values",
    "stable_rank",
    "svd",
]
