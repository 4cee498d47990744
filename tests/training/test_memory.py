"""Memory that a process frees stays with it."""

import ctypes
import subprocess
import sys

import pytest

from cmr_runner.training.memory import M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, keep_freed_memory


def test_freed_memory_stays_with_the_process():
    """In a process of its own: the setting is for good. Pages are faulted in once, not in every round."""
    script = (
        "import resource, torch\n"
        "from cmr_runner import keep_freed_memory\n"
        "def step():\n"
        "    small = torch.ones(1 << 18)\n"
        "    many = [torch.ones(1 << 20) for _ in range(12)]\n"
        "    del many\n"
        "    torch.ones(1 << 21)\n"
        "def faults():\n"
        "    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "if keep_freed_memory():\n"
        "    for _ in range(3): step()\n"
        "    before = faults()\n"
        "    for _ in range(10): step()\n"
        "    assert faults() - before < 12288, faults() - before  # the pages of one step\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's setting")
@pytest.mark.parametrize(
    ("limit", "accepted"),
    [
        (1 << 31, [(M_MMAP_THRESHOLD, 1 << 30), (M_TRIM_THRESHOLD, 1 << 30)]),
        (32 << 20, [(M_MMAP_THRESHOLD, 32 << 20), (M_TRIM_THRESHOLD, 1 << 30)]),  # glibc up to some version
        (0, []),  # the trim threshold alone would be worse than nothing
    ],
)
def test_a_library_that_refuses_a_large_threshold_gets_a_smaller_one(monkeypatch, limit, accepted):
    class Library:
        def __init__(self, name):
            self.taken = taken

        def mallopt(self, key, value):
            if key == M_MMAP_THRESHOLD and value > limit:
                return 0
            self.taken.append((key, value))
            return 1

    taken = []
    monkeypatch.setattr(ctypes, "CDLL", Library)
    assert keep_freed_memory() == bool(accepted)
    assert taken == accepted
