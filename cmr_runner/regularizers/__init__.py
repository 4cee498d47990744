"""Regularisers: they act on a model, by adding to its gradients or by parametrising its weights."""

from cmr_runner.regularizers.analysis import analyze
from cmr_runner.regularizers.base import Regularizer, StepNumbers
from cmr_runner.regularizers.cmr import CMR
from cmr_runner.regularizers.l2 import L2
from cmr_runner.regularizers.layers import LayerRule, find_layers
from cmr_runner.regularizers.learned import CMRLearned
from cmr_runner.regularizers.orthogonal import Orthogonal
from cmr_runner.regularizers.orthogonality_penalty import SRIP, SoftOrthogonality
from cmr_runner.regularizers.sigma_max_penalty import AlmostIsometry, SigmaOne, SpectralPenalty
from cmr_runner.regularizers.spectral_norm import SpectralNorm, SpectralNormCMR

__all__ = [
    "CMR",
    "L2",
    "SRIP",
    "AlmostIsometry",
    "CMRLearned",
    "LayerRule",
    "Orthogonal",
    "Regularizer",
    "SigmaOne",
    "SoftOrthogonality",
    "SpectralNorm",
    "SpectralNormCMR",
    "SpectralPenalty",
    "StepNumbers",
    "analyze",
    "find_layers",
]
