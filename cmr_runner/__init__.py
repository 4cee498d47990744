"""Chebyshev Moment Regularization: what your own loop needs, and the experiment runner around it."""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["CMR", "LayerRule", "analyze", "keep_freed_memory"]

if TYPE_CHECKING:
    from cmr_runner.regularizers.analysis import analyze
    from cmr_runner.regularizers.cmr import CMR
    from cmr_runner.regularizers.layers import LayerRule
    from cmr_runner.training.memory import keep_freed_memory

_ROOMS = {"keep_freed_memory": "cmr_runner.training.memory"}


def __getattr__(name: str) -> Any:
    # Lazy, so that cmr-plot and cmr-report start without importing torch.
    if name in __all__:
        return getattr(importlib.import_module(_ROOMS.get(name, "cmr_runner.regularizers")), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
