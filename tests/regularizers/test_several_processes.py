"""DDP and FSDP2 on two real processes add the gradients of one process, and share the layers."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from cmr_runner.regularizers.processes import balanced
from tests.regularizers.several_processes import ALL_LAYERS, BY_TURNS, WAYS, trained

pytestmark = pytest.mark.slow
PROGRAM = Path(__file__).with_name("several_processes.py")


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, bool], Any]:
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


@pytest.mark.parametrize("turns", [False, True], ids=["all layers", "by turns"])
@pytest.mark.parametrize("way", WAYS)
def test_two_processes_add_what_one_adds(way: str, turns: bool, together: dict[tuple[str, bool], Any]) -> None:
    alone, found = trained("alone", 0, 1, BY_TURNS if turns else ALL_LAYERS), together[way, turns]
    for kind in ("gradients", "weights"):
        assert found[kind].keys() == alone[kind].keys()
        for name, expected in alone[kind].items():
            assert (found[kind][name] - expected).norm() <= 1e-4 * expected.norm(), f"{kind} of {name}"
    for name, expected in alone["numbers"].items():
        assert found["numbers"][name] == pytest.approx(expected, rel=1e-4), name
    assert found["kappa"] == pytest.approx(alone["kappa"], rel=1e-4)
    first, second = found["computed"]
    assert first[0]
    assert second[0]
    assert not set(first[0]) & set(second[0])
    for of_first, of_second, everything in zip(first, second, alone["computed"], strict=True):
        assert sorted(of_first + of_second) == sorted(everything)
        assert set(of_first) <= set(first[0])  # each layer by one process, the same at all steps
    assert (len(alone["computed"][-1]) < len(alone["computed"][0])) == turns


@pytest.mark.parametrize(("layers", "ranks"), [(24, 2), (24, 8), (72, 64), (15, 4)])
def test_the_work_of_every_turn_and_what_is_kept_are_divided_evenly(layers: int, ranks: int) -> None:
    turns = [i % 8 for i in range(layers)]
    owners = balanced([1.0] * layers, turns, ranks)
    for turn in range(8):
        work = [owners[turn::8].count(rank) for rank in range(ranks)]
        assert max(work) - min(work) <= 1
    kept = [owners.count(rank) for rank in range(ranks)]
    assert max(kept) - min(kept) <= 1
