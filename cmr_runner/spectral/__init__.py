"""Numbers about matrices: torch only, no model, no configuration, no file.

Notation, paper symbol -> name in code -> shape -> meaning. `...` are batch dimensions, r = min(m, n).

| paper | code | shape | meaning | file |
|---|---|---|---|---|
| W | `W` | (..., m, n) | a weight as a matrix | matrix |
| σ_1 >= ... >= σ_r | `sigma` | (..., r) | singular values, descending | spectrum |
| κ(W) | `condition_number(sigma)` | (...) | σ_max / σ_min | spectrum |
| ε | `eps` | scalar | floor under σ_min² and under d | penalty |
| ρ_cond | `rho_cond(sigma, eps)` | (...) | log-condition proxy | condition |
| λ_i, x_i | `lam`, `x` | (..., r) | eigenvalues of the Gram matrix; the same in [-1, 1] | moments |
| c, d | `c`, `d` | (...) | centre and half-width of the Gram spectrum | moments |
| T_k, T_k' | `chebyshev(x, K)` | (K+1, ...) | Chebyshev polynomials and their derivatives | moments |
| s_k | `moments(...)` | (..., K+1) | Chebyshev moments, k = 0..K | moments |
| w_k | `moment_weights(K, beta)` | (K-2,) | exp(β(k-3)), k = 3..K | moments |
| ρ_moment | `rho_moment(s, w)` | (...) | Σ_{k>=3} w_k s_k² | moments |
| α₁ρ_cond + α₂ρ_moment | `layer_penalty(W, spec)` | (...) | the penalty of one layer, differentiable | penalty |
| ∇_W | `.gradient` | (..., m, n) | closed form, U diag(∂/∂σ_i) Vᵀ | penalty |

λ, the strength of the whole penalty, is `lam` in `cmr_runner.regularizers`; here `lam` are eigenvalues.
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
