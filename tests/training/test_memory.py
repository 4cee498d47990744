"""Memory that a process frees stays with it."""

import subprocess
import sys


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
