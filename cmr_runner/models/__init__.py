"""Networks."""

from cmr_runner.models.cnn import CNN
from cmr_runner.models.mlp import MLP
from cmr_runner.models.transformer import Transformer

__all__ = ["CNN", "MLP", "Transformer"]
