"""A user's own parts, from outside the package: a YAML, a module, and the real command; nothing here is edited."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from run_process import PATIENCE, TINY, call, environment, only_directory, record

SMALL = ("trainer.epochs=1", "progress=none")
PARTS = {
    "model": (
        "_target_: mine.Net\n_partial_: true\nwidth: 6\n",
        """
        import math
        from torch import nn

        class Net(nn.Sequential):
            def __init__(self, input_shape, num_classes, *, width: int = 4):
                super().__init__(nn.Flatten(), nn.Linear(math.prod(input_shape), width), nn.Linear(width, num_classes))
        """,
    ),
    "dataset": (
        "_target_: mine.noise\nexamples: 24\n",
        """
        import torch
        from cmr_runner.data.dataset import Dataset

        def noise(examples: int = 8):
            x, y = torch.randn(examples, 5), torch.arange(examples) % 3
            return Dataset("noise", x, y, x, y, 3)
        """,
    ),
    "init": (
        "_target_: mine.constant_\n_partial_: true\nvalue: 0.25\n",
        """
        from torch import nn

        def constant_(model, generator, *, value: float = 0.0):
            for p in model.parameters():
                nn.init.normal_(p, std=value, generator=generator)
        """,
    ),
    "optimizer": (
        "_target_: mine.Halving\n_partial_: true\nlr: 0.1\n",
        """
        from torch import optim

        class Halving(optim.SGD):
            def __init__(self, params, lr: float = 1.0):
                super().__init__(params, lr=lr / 2)
        """,
    ),
    "regularizer": (
        "_target_: mine.Shrink\n_partial_: true\nlam: 0.5\n",
        """
        from cmr_runner.regularizers import Regularizer

        class Shrink(Regularizer):
            method = "shrink"

            def __init__(self, model, *, lam: float = 0.1, **options):
                super().__init__(model, **options)
                self.lam = lam

            def add_gradients(self):
                for layer in self.layers:
                    for p in layer.weight.parameters:
                        p.grad += self.lam * p.detach()
        """,
    ),
}
KEYS = {"model": "width", "dataset": "examples", "init": "value", "optimizer": "lr", "regularizer": "lam"}


NOT_REPLACED = tuple(word for word in TINY if not word.startswith(("model.", "dataset")))


def written(folder: Path, group: str, module: Path) -> Path:
    """`folder` with the YAML `<group>/mine.yaml`, and the code added to `module`."""
    yaml, code = PARTS[group]
    (folder / group).mkdir(parents=True)
    (folder / group / "mine.yaml").write_text(yaml)
    module.parent.mkdir(exist_ok=True)
    with module.open("a") as file:
        file.write(textwrap.dedent(code))
    return folder


def cmr_run(cwd: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The installed command, which does not have the working directory in its path as `python -m` has."""
    command = [str(Path(sys.executable).with_name("cmr-run")), *words]
    return subprocess.run(
        command, cwd=cwd, env=environment(), capture_output=True, text=True, timeout=PATIENCE, check=False
    )


def test_a_folder_with_yamls_and_a_module_adds_an_option_to_every_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for group in PARTS:
        folder = written(tmp_path / "my_conf", group, tmp_path / "my_conf" / "mine.py")
    words = ("--config-dir", str(folder), *NOT_REPLACED, *SMALL, *(f"{group}=mine" for group in PARTS))
    done = cmr_run(tmp_path, *words)
    assert done.returncode == 0, done.stderr
    run = record(only_directory(tmp_path))
    assert run["status"] == "completed"
    assert {run["choices"][group] for group in PARTS} == {"mine"}
    assert run["final"]["step"] == 2  # 24 examples of its own data set in batches of 16
    assert run["final"]["train_loss"] > 0

    monkeypatch.setattr(sys, "path", [*sys.path])
    for group, key in KEYS.items():
        wrong = call(tmp_path, *words, f"{group}.{key}=many", base=())
        assert wrong.returncode == 2
        assert wrong.stderr.startswith(f"cmr-run: {group}.{key} must be a")
        assert wrong.stderr.endswith("got 'many'\n")


@pytest.mark.parametrize("place", ["beside the folder", "working directory"])
def test_the_module_may_lie_elsewhere(place: str, tmp_path: Path) -> None:
    cwd = tmp_path / "cwd"
    cwd.mkdir()
    home = tmp_path if place == "beside the folder" else cwd
    folder = written(tmp_path / "my_conf", "optimizer", home / "mine.py")
    done = cmr_run(cwd, "--config-dir", str(folder), *TINY, *SMALL, "optimizer=mine")
    assert done.returncode == 0, done.stderr


def test_a_module_that_is_not_found_or_broken_is_one_line_that_says_where_to_put_it(tmp_path: Path) -> None:
    folder = written(tmp_path / "my_conf", "optimizer", tmp_path / "elsewhere" / "mine.py")
    words = ("--config-dir", str(folder), *TINY, *SMALL, "optimizer=mine")
    done = cmr_run(tmp_path, *words)
    assert done.returncode == 2
    trouble = "cmr-run: optimizer._target_=mine.Halving cannot be imported: "
    assert done.stderr.startswith(f"{trouble}ModuleNotFoundError: No module named 'mine'; it may be installed")
    assert done.stderr.endswith("PYTHONPATH, in --config-dir or beside it, or in the working directory\n")
    (tmp_path / "mine.py").write_text("def Halving(:\n")
    broken = cmr_run(tmp_path, *words)
    assert broken.stderr.startswith(f"{trouble}SyntaxError: ")
    assert broken.stderr.count("\n") == 1
    assert not list(tmp_path.rglob("run.json"))
