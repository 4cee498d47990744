"""Products of float32 matrices in full float32, whatever the process has chosen for its network."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

_FULL = ("ieee", "none", "highest")  # "none": nobody chose, which means full


def is_full_precision() -> bool:
    """Whether float32 products are full ones now: no TF32 on a GPU, no bfloat16 on a CPU."""
    return all(precision in _FULL for precision in _precisions())


@contextmanager
def full_precision() -> Iterator[None]:
    """Within it float32 products are full ones; afterwards the process's own setting is back.

    The setting is the process's, not a thread's: nothing of the network may run meanwhile. Reduced-precision
    reductions of half-precision products need no care here, because spectra are taken in float32 or better.
    """
    if is_full_precision():
        yield
        return
    before = _precisions()
    _set("ieee" if _BY_BACKEND else "highest")
    try:
        yield
    finally:
        _set(*before)


# One setting per backend since torch 2.9. There the older one refuses to be read once the others were written.
_BY_BACKEND = hasattr(torch.backends.cuda.matmul, "fp32_precision")


def _precisions() -> list[str]:
    if not _BY_BACKEND:
        return [torch.get_float32_matmul_precision()]
    return [matmul.fp32_precision for matmul in _matmuls()]


def _set(*precisions: str) -> None:
    """One value for all backends, or one for each."""
    if not _BY_BACKEND:
        torch.set_float32_matmul_precision(precisions[0])
        return
    matmuls = _matmuls()
    for matmul, precision in zip(
        matmuls, precisions if len(precisions) > 1 else precisions * len(matmuls), strict=True
    ):
        matmul.fp32_precision = precision


def _matmuls() -> list[Any]:
    return [torch.backends.cuda.matmul, torch.backends.mkldnn.matmul]  # type: ignore[attr-defined]
