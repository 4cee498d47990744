"""Arrays out of pickles that may come from anywhere."""

import gzip
import pickle
from collections.abc import Callable
from typing import IO, Any

import numpy as np


def _dtype(kind: str, align: object = False, copy: object = False) -> np.dtype:
    # Pickles of Python 2 give the flags as 0 and 1, which numpy is about to refuse.
    return np.dtype(kind, align=bool(align), copy=bool(copy))


class ArrayUnpickler(pickle.Unpickler):
    """Reads numpy arrays, also Python 2's, and refuses every other global, so that a pickle cannot run code."""

    _ALLOWED: dict[tuple[str, str], Callable[..., Any]] = {  # noqa: RUF012
        ("numpy", "dtype"): _dtype,
        ("numpy", "ndarray"): np.ndarray,
        # numpy keeps this function under a private name that moved in 2.0; an array's own pickle names it.
        ("numpy.core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],  # type: ignore[dict-item]
        ("numpy._core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],  # type: ignore[dict-item]
    }

    def __init__(self, file: IO[bytes] | gzip.GzipFile) -> None:
        super().__init__(file, encoding="latin1")

    def find_class(self, module_name: str, global_name: str) -> Any:
        try:
            return self._ALLOWED[module_name, global_name]
        except KeyError:
            raise pickle.UnpicklingError(f"{module_name}.{global_name} is not allowed") from None
