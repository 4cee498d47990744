"""Regularisers: they act on a model, by adding to its gradients or by parametrising its weights."""

from cmr_runner.regularizers.analysis import analyze
from cmr_runner.regularizers.base import Regularizer, StepFigures
from cmr_runner.regularizers.cmr import CMR
from cmr_runner.regularizers.layers import LayerRule, find_layers

__all__ = ["CMR", "LayerRule", "Regularizer", "StepFigures", "analyze", "find_layers"]
