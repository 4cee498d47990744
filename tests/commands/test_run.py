"""cmr-run as a person meets it: what it prints, writes and answers to a mistake."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from run_process import call, only_directory, record, results, run

from cmr_runner.commands.composition import config_directory


def test_a_run_leaves_every_file_and_says_where(tmp_path: Path) -> None:
    done = call(tmp_path, "trainer.epochs=2", "seed=0")
    assert done.returncode == 0, done.stderr
    directory = only_directory(tmp_path)
    names = {path.name for path in directory.iterdir()}
    assert names == {".hydra", "run.json", "metrics.csv", "layers.csv", "spectra.csv", "checkpoint.pt", "model.pt"}
    assert f"files: {directory}" in done.stdout
    assert [line.split()[1] for line in done.stdout.splitlines() if line.startswith("epoch ")][:3] == [
        "0/2",
        "1/2",
        "2/2",
    ]

    content = record(directory)
    assert content["status"] == "completed"
    assert content["config"]["seed"] == 0
    assert "threads" not in content["config"]
    assert content["choices"]["regularizer"] == "cmr"
    assert directory.name == f"{content['identity']['name']}-{content['identity']['hash']}"
    assert content["final"]["epoch"] == content["final"]["epochs"] == 2
    assert content["provenance"]["threads"] == 1
    assert content["provenance"]["versions"].keys() >= {"python", "torch", "numpy", "cmr_runner"}
    assert content["provenance"]["command"].startswith("cmr-run ")


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(tmp_path: Path) -> None:
    found = []
    for place, seed in (("a", 0), ("b", 0), ("c", 1)):
        (tmp_path / place).mkdir()
        assert call(tmp_path / place, f"seed={seed}", "trainer.epochs=2").returncode == 0
        found.append(results(only_directory(tmp_path / place)))
    assert found[0] == found[1]
    assert found[0]["model.pt"] != found[2]["model.pt"]


@pytest.mark.parametrize("regularizer", ["cmr", "srip", "spectral_norm_cmr"])
def test_computing_spectra_beside_training_changes_no_result(tmp_path: Path, regularizer: str) -> None:
    found = []
    for threads in (1, 3):
        (tmp_path / str(threads)).mkdir()
        words = (f"regularizer={regularizer}", "model.width=40", "trainer.epochs=2", f"spectral_threads={threads}")
        assert call(tmp_path / str(threads), *words).returncode == 0
        found.append(results(only_directory(tmp_path / str(threads))))
    assert found[0] == found[1]


def test_a_default_written_out_names_the_same_run(tmp_path: Path) -> None:
    assert call(tmp_path, "trainer.epochs=1").returncode == 0
    again = call(tmp_path, "trainer.epochs=1", "regularizer.lam=2e-2", "regularizer=cmr", "threads=1")
    assert "completed before" in again.stdout
    only_directory(tmp_path)


@pytest.mark.parametrize(
    ("word", "names"),
    [
        ("regularizer=cmrr", ["regularizer=cmrr", "cmr", "none"]),
        ("regularizer.lamda=1", ["regularizer.lamda=1", "did you mean regularizer.lam?"]),
        ("sed=1", ["sed=1", "did you mean seed?"]),
        ("+regularizer.colour=1", ["regularizer.colour=1", "no such key", "CMR takes", "lam"]),
        ("+lam=0.5", ["lam=0.5", "did you mean regularizer.lam?"]),
        ("hydra/launcher=joblib", ["hydra/launcher=joblib", "add -m"]),
        ("trainer.epochs=1.5", ["trainer.epochs", "integer", "1.5"]),
        ("trainer.diagnostics=maybe", ["trainer.diagnostics", "true or false", "maybe"]),
        ("optimizer.betas=0.9", ["optimizer.betas", "2 numbers", "0.9"]),
        ("optimizer.betas=[0.9,abc]", ["optimizer.betas", "2 numbers", "abc"]),
        ("optimizer.eps=-1", ["optimizer.eps", ">= 0", "-1"]),
        ("init=checkpoint", ["init.path", "must be given"]),
        ("regularizer.layers.min_side=abc", ["regularizer.layers.min_side", "integer", "abc"]),
        ("seed", ["'seed'", "key=value"]),
        ("seed=0,1", ["seed=0,1", "-m"]),
        ("seed=-1", ["seed", "integer in [0, ", "-1"]),
        ("~seed", ["seed must be given"]),
        ("~init", ["init must be given"]),
        ("~output_root", ["output_root"]),
        ("~debug", ["debug must be given"]),
        ("~on_failure", ["on_failure must be given"]),
        ("seed=abc", ["seed", "abc"]),
        ("threads=0", ["threads", "in [1, 4096]"]),
        ("threads=99999999999999999999", ["threads", "in [1, 4096]"]),
        ("device=tpu", ["device", "auto, cpu, cuda, mps", "tpu"]),
        ("on_failure=cry", ["on_failure", "continue, stop"]),
        ("regularizer.lam=-1", ["regularizer.lam", ">= 0", "-1"]),
        ("regularizer.lam=big", ["regularizer.lam", "number", "big"]),
        ("regularizer.K=2", ["regularizer.K", ">= 3", "2"]),
        ("regularizer.rho_spec=1.5", ["regularizer.rho_spec", "(0, 1]", "1.5"]),
        ("regularizer.eps=0", ["regularizer.eps", "in (0, 1e+30]"]),
        ("regularizer.eps=1e300", ["regularizer.eps", "in (0, 1e+30]"]),
        ("trainer.epochs=0", ["trainer.epochs", ">= 1", "0"]),
        ("trainer.batch_size=0", ["trainer.batch_size", ">= 1", "0"]),
        ("--epochs=3", ["--epochs", "trainer.epochs="]),
        ("output_root=/proc/nowhere", ["output_root", "/proc/nowhere"]),
    ],
)
def test_a_mistake_is_one_line_that_names_the_key_and_exits_with_2(word: str, names: list[str], tmp_path: Path) -> None:
    done = call(tmp_path, word)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert [name for name in names if name not in line] == [], line
    assert not list(tmp_path.rglob("run.json"))
    # No empty run directory either.
    assert [path.name for path in tmp_path.glob("outputs/*/*")] in ([], [".locks"])


def test_a_run_may_have_its_directory_as_the_working_directory(tmp_path: Path) -> None:
    done = call(tmp_path, "trainer.epochs=1", "hydra.job.chdir=true")
    assert done.returncode == 0, done.stderr
    assert record(only_directory(tmp_path))["status"] == "completed"


def test_debug_brings_the_traceback_of_a_mistake(tmp_path: Path) -> None:
    done = call(tmp_path, "regularizer=cmrr", "debug=true")
    assert done.returncode == 2
    assert "Traceback" in done.stderr


def test_a_file_in_the_way_of_the_output_is_a_mistake(tmp_path: Path) -> None:
    (tmp_path / "outputs").write_text("in the way")
    done = call(tmp_path)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "output_root" in line
    assert (tmp_path / "outputs").read_text() == "in the way"


def test_divergence_keeps_its_rows_and_is_not_computed_again(tmp_path: Path) -> None:
    words = ("optimizer=sgd", "optimizer.lr=3e38", "trainer.clip_norm=inf", "trainer.epochs=3", "regularizer=none")
    done = call(tmp_path, *words)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "finite" in line
    directory = only_directory(tmp_path)
    assert record(directory)["status"] == "diverged"
    rows = (directory / "metrics.csv").read_bytes()
    assert rows.count(b"\n") >= 2
    again = call(tmp_path, *words)
    assert again.returncode == 1
    assert "diverged before" in again.stderr
    assert (directory / "metrics.csv").read_bytes() == rows


def test_help_lists_the_groups_with_examples_and_cfg_shows_the_configuration(tmp_path: Path) -> None:
    text = call(tmp_path, "--help").stdout
    assert "regularizer: " in text
    assert "cmr-run -m regularizer=none,cmr" in text
    assert "lam: 0.02" in call(tmp_path, "--cfg", "job").stdout
    assert not list(tmp_path.iterdir())


def test_options_may_stand_between_settings(tmp_path: Path) -> None:
    assert "lam: 0.5" in call(tmp_path, "seed=1", "--cfg", "job", "regularizer.lam=0.5").stdout


def test_the_configuration_is_found_from_any_directory(tmp_path: Path) -> None:
    assert (config_directory() / "regularizer" / "cmr.yaml").is_file()
    done = run(tmp_path, "--cfg", "job")
    assert "kappa_stress" in done.stdout or "gain: 0.06" in done.stdout


def test_a_finished_run_is_skipped_without_importing_torch(tmp_path: Path) -> None:
    assert call(tmp_path, "trainer.epochs=1").returncode == 0
    script = (
        "import sys, json, runpy\n"
        "try:\n    runpy.run_module('cmr_runner', run_name='__main__')\n"
        "except SystemExit as end:\n    print(json.dumps([end.code, 'torch' in sys.modules]))\n"
    )
    from run_process import TINY, environment

    done = subprocess.run(
        [sys.executable, "-c", script, *TINY, "trainer.epochs=1"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout.splitlines()[-1]) == [0, False]
