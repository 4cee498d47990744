"""DDP and FSDP2 on two real processes add the gradients of one process, and share the layers."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.regularizers.several_processes import trained

pytestmark = pytest.mark.slow
PROGRAM = Path(__file__).with_name("several_processes.py")


@pytest.fixture(scope="module")
def alone() -> dict[str, Any]:
    return trained("alone", 0, 1)


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    file = tmp_path_factory.mktemp("processes") / "found.pt"
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", PROGRAM, file],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return torch.load(file)


@pytest.mark.parametrize("way", ["ddp", "fsdp", "fsdp_partly"])
def test_two_processes_add_what_one_adds(way: str, alone: dict[str, Any], together: dict[str, Any]) -> None:
    found = together[way]
    for kind in ("gradients", "weights"):
        assert found[kind].keys() == alone[kind].keys()
        for name, expected in alone[kind].items():
            # Halves of a batch averaged over processes: another order of summation in the task's gradient.
            torch.testing.assert_close(found[kind][name], expected, rtol=1e-4, atol=1e-6, msg=f"{kind} of {name}")
    for name, expected in alone["numbers"].items():
        assert found["numbers"][name] == pytest.approx(expected, rel=1e-4), name
    assert found["kappa"] == pytest.approx(alone["kappa"], rel=1e-4)
    everything = [layer.name for part in alone["groups"].values() for layer in part.layers]
    first, second = found["computed"]
    assert first
    assert second
    assert sorted(first + second) == sorted(everything)  # each layer by one process
