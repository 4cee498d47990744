"""What the C library does with freed memory."""

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # glibc's numbers, malloc.h
MMAP_MOST = 32 << 20  # what every 64-bit glibc accepts as M_MMAP_THRESHOLD; older ones refuse more


def keep_freed_memory(up_to: int = 1 << 30) -> bool:
    """Let the process keep what it frees, so that the next step's tensors find their pages in place; False if it can't.

    glibc hands freed memory back to the system whenever a few MB are free at the end, and each step then faults every
    page in again: measured at the paper's size, 5,800 faults of 3 µs in a step of `fast`. For the whole process, so it
    is for a program to call, not for a library.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):  # another C library
        return False
    # The order matters: setting either ends glibc's own adjustment of both, so the trim threshold alone, with the
    # other left at its small start, would be worse than nothing.
    accepted = mallopt(M_MMAP_THRESHOLD, up_to) or mallopt(M_MMAP_THRESHOLD, min(up_to, MMAP_MOST))
    return bool(accepted) and bool(mallopt(M_TRIM_THRESHOLD, up_to))
