"""Initialisations: they write a model's weights in place from a generator."""

from cmr_runner.inits.glorot import glorot_uniform_
from cmr_runner.inits.orthogonal import orthogonal_

__all__ = ["glorot_uniform_", "orthogonal_"]
