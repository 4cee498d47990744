"""Networks."""

from cmr_runner.models.mlp import MLP

__all__ = ["MLP"]
