"""Chebyshev Moment Regularization: `CMR` and `analyze` for your own loop, and the experiment runner around them."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["CMR", "analyze"]

if TYPE_CHECKING:
    from cmr_runner.regularizers.analysis import analyze
    from cmr_runner.regularizers.cmr import CMR


def __getattr__(name: str) -> Any:
    # Lazy, so that cmr-plot and cmr-report start without importing torch.
    if name == "CMR":
        from cmr_runner.regularizers.cmr import CMR

        return CMR
    if name == "analyze":
        from cmr_runner.regularizers.analysis import analyze

        return analyze
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
