"""The examples run as they are, in processes of their own, on the real frameworks."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "scripts" / "examples"
# A CPU-only torch beside the usual torchvision wheel needs this before any framework imports torchvision.
RUN = "import runpy, sys; from cmr_runner.data.torchvision_import import import_torchvision; import_torchvision(); "
RUN += "sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
NEEDS = {"lightning_callback": "lightning", "hf_trainer_gpt2": "transformers", "timm_vit": "timm"}
SUMMARY = r"CMR\((\d+) layers, lam=0.02, engine=auto\) after (\d+) steps: StepNumbers\(norm_task=.*kappa_max=\S+\)"


def output(*command: str | Path) -> str:
    done = subprocess.run(
        [sys.executable, *command],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def example(name: str) -> str:
    needed = NEEDS.get(name)
    if needed and importlib.util.find_spec(needed) is None:
        pytest.skip(f"needs {needed}: pip install -e '.[integrations]'")
    return output("-c", RUN, EXAMPLES / f"{name}.py")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "layers", "steps"),
    [("attach", 3, 10), ("lightning_callback", 3, 10), ("hf_trainer_gpt2", 12, 6), ("timm_vit", 26, 4)],
)
def test_an_example_ends_with_what_its_last_step_did(name: str, layers: int, steps: int) -> None:
    found = re.search(SUMMARY, example(name))
    assert found
    assert (int(found[1]), int(found[2])) == (layers, steps)


@pytest.mark.slow
def test_fsdp2_example_runs_on_two_processes() -> None:
    said = output("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", EXAMPLES / "fsdp2.py")
    (found,) = re.findall(SUMMARY, said)  # told by one process
    assert found == ("3", "5")


def test_plain_loop_example_lowers_kappa_and_ends_with_the_table() -> None:
    said = example("plain_loop").splitlines()
    kappa = [float(found[1]) for line in said if (found := re.search(r"kappa_mean=([\d.]+)", line))]
    assert len(kappa) == 3
    assert kappa[0] > kappa[-1]
    assert said[-5].split()[:4] == ["layer", "κ", "σ_max", "σ_min"]


@pytest.mark.slow
def test_torchvision_example_lowers_kappa_of_resnet18() -> None:
    said = example("torchvision_resnet").splitlines()
    assert [line.split()[:2] for line in said[:2]] == [["step", "0"], ["step", "1"]]
    assert said[-1].startswith("21 layers, mean κ ")
    before, after = (float(text) for text in said[-1].rpartition("κ ")[2].split(" -> "))
    assert after <= before


def test_every_example_is_tested() -> None:
    source = Path(__file__).read_text()
    assert all(f'"{path.stem}"' in source or path.name in source for path in EXAMPLES.glob("*.py"))
