"""Initialisations: they write a model's weights in place from a generator."""

from cmr_runner.inits.checkpoint import checkpoint_
from cmr_runner.inits.glorot import glorot_uniform_
from cmr_runner.inits.kaiming import kaiming_normal_
from cmr_runner.inits.orthogonal import orthogonal_, rescaled_
from cmr_runner.inits.prescribed import prescribed_kappa_

__all__ = ["checkpoint_", "glorot_uniform_", "kaiming_normal_", "orthogonal_", "prescribed_kappa_", "rescaled_"]
