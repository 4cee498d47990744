"""Sweeps: past failures, resumed by the same command, equal to jobs run alone, under several launchers."""

import json
import os
import random
import signal
import time
from pathlib import Path

import pytest
from run_process import (
    PATIENCE,
    Instant,
    by_name,
    call,
    directories,
    freezing,
    frozen,
    frozen_job,
    kill,
    only_directory,
    record,
    start,
    table,
    thaw,
    when,
)


def test_job_seven_of_a_sweep_equals_the_same_job_alone(tmp_path: Path) -> None:
    sweep, alone = tmp_path / "sweep", tmp_path / "alone"
    sweep.mkdir(), alone.mkdir()
    words = ("trainer.epochs=2", "regularizer=cmr_learned")
    done = call(sweep, "-m", *words, "seed=0,1,2,3,4,5,6")
    assert done.returncode == 0, done.stderr
    assert table(done.stdout) == dict.fromkeys(range(7), "completed")
    assert call(alone, *words, "seed=6").returncode == 0
    assert by_name(sweep).items() >= by_name(alone).items()
    assert not list(sweep.glob("outputs/.sweeps"))


def test_a_sweep_goes_past_failures_and_ends_with_their_reasons(tmp_path: Path) -> None:
    words = ("-m", "trainer.epochs=1", "regularizer.lam=-1,0.02", "optimizer=adam,sgd")
    done = call(tmp_path, *words)
    assert done.returncode == 1
    assert table(done.stdout) == {0: "failed", 1: "failed", 2: "completed", 3: "completed"}
    assert "regularizer.lam must be >= 0, got -1" in done.stdout[done.stdout.rindex("job  outcome") :]
    again = call(tmp_path, *words)
    assert table(again.stdout) == {0: "failed", 1: "failed", 2: "skipped", 3: "skipped"}


def test_on_failure_stop_starts_no_job_after_a_failed_one(tmp_path: Path) -> None:
    done = call(tmp_path, "-m", "trainer.epochs=1", "seed=0,1", "regularizer.lam=0.02,-1", "on_failure=stop")
    assert done.returncode == 1
    assert list(table(done.stdout).values()) == ["completed", "failed", "not", "not"]
    assert len(directories(tmp_path)) == 1
    assert done.stdout.splitlines()[-1].startswith("stopped after a failed job (on_failure=stop); go on with: ")


def test_a_bad_value_for_a_group_stops_a_sweep_before_its_first_job(tmp_path: Path) -> None:
    done = call(tmp_path, "-m", "regularizer=cmr,cmrr")
    assert done.returncode == 2
    assert "regularizer=cmrr: no such option" in done.stderr
    assert directories(tmp_path) == []


def test_a_missing_launcher_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    done = call(tmp_path, "-m", "hydra/launcher=ray", "seed=0,1", "+no.such.key.so.that.it.stops=1,2", "nonsense")
    assert done.returncode == 2
    assert "cmr-runner[ray]" in done.stderr


@pytest.mark.parametrize("value", ["0", "-1", "abc", "1.5"])
def test_a_bad_batch_size_of_a_sweep_is_named(value: str, tmp_path: Path) -> None:
    done = call(tmp_path, "-m", "seed=0,1", f"hydra.sweeper.max_batch_size={value}")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "max_batch_size" in line
    assert directories(tmp_path) == []


def finished(root: Path) -> int:
    return sum(record(directory)["status"] == "completed" for directory in directories(root))


def interrupted(root: Path, launcher: str, *words: str) -> tuple[int, str]:
    """The exit code and output of a sweep whose own process, not its workers, got SIGTERM after its first job."""
    if launcher == "basic":
        process = frozen(root, Instant("run.json", 3), *words)  # twice in the first job: as it starts and as it ends
    else:
        process = start(root, *words, f"hydra/launcher={launcher}")
        assert when(process, lambda: finished(root) >= 1)
    process.send_signal(signal.SIGTERM)
    out, _ = thaw(process)
    return process.returncode, out


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["basic", "joblib"])
def test_an_interrupted_sweep_stops_cleanly_and_the_same_command_completes_it(launcher: str, tmp_path: Path) -> None:
    # Long and many enough that joblib's workers cannot be through with all before the signal comes.
    words = ("-m", "trainer.epochs=40", "seed=0,1,2,3,4,5")
    code, out = interrupted(tmp_path, launcher, *words)
    assert code == 128 + signal.SIGTERM, out
    assert out.splitlines()[-1].startswith("interrupted; go on with: ")
    assert set(table(out).values()) <= {"completed", "interrupted", "not"}
    assert {record(directory)["status"] for directory in directories(tmp_path)} <= {"completed", "interrupted"}

    (tmp_path / "calm").mkdir()
    assert call(tmp_path, *words).returncode == 0
    assert call(tmp_path / "calm", *words).returncode == 0
    assert by_name(tmp_path) == by_name(tmp_path / "calm")


@pytest.mark.slow
def test_twelve_jobs_killed_five_times_equal_twelve_left_alone(tmp_path: Path) -> None:
    calm, rough = tmp_path / "calm", tmp_path / "rough"
    calm.mkdir(), rough.mkdir()
    words = ("-m", "trainer.epochs=3", "regularizer=none,cmr", "seed=0,1,2,3,4,5")
    assert call(calm, *words).returncode == 0

    rng = random.Random(12)
    for number in range(5):
        # Two of the jobs write metrics.csv eight times: each process gets to its second job, or the third.
        kill(frozen(rough, Instant("metrics.csv", 7, calls=rng.randrange(20_000)), *words))
        assert number < len(directories(rough)) < 12

    last = call(rough, *words)
    assert last.returncode == 0, last.stderr
    assert set(table(last.stdout).values()) <= {"completed", "resumed", "skipped"}
    assert len(directories(rough)) == 12
    assert by_name(rough) == by_name(calm)


@pytest.mark.slow
def test_joblib_gives_the_bytes_of_a_serial_sweep_and_its_workers_end_with_a_killed_parent(tmp_path: Path) -> None:
    serial, parallel = tmp_path / "serial", tmp_path / "parallel"
    serial.mkdir(), parallel.mkdir()
    words = ("-m", "trainer.epochs=12", "seed=0,1,2")
    assert call(serial, *words).returncode == 0
    process = start(parallel, *words, "hydra/launcher=joblib")
    assert when(process, lambda: len(directories(parallel)) >= 1, pause=0.001)
    kill(process)  # the workers outlive it only until their next step
    deadline = time.monotonic() + 60
    done = call(parallel, *words)
    while done.returncode and time.monotonic() < deadline:
        assert "is being written by" in done.stdout
        done = call(parallel, *words)
    assert done.returncode == 0
    assert by_name(parallel) == by_name(serial)


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["joblib", "submitit_local", "ray"])
def test_a_killed_worker_costs_its_own_job_only_and_the_same_command_goes_on_with_it(
    launcher: str, tmp_path: Path
) -> None:
    rough, calm = tmp_path / "rough", tmp_path / "calm"
    rough.mkdir(), calm.mkdir()
    words = ("-m", "trainer.epochs=4", "seed=0,1,2")
    process = start(rough, *words, f"hydra/launcher={launcher}", **freezing(rough))
    pid = frozen_job(process, rough)
    started = {path: json.loads(path.read_text())["pid"] for path in rough.glob("outputs/.sweeps/*/*.started")}
    (lost,) = (int(path.stem) for path, worker in started.items() if worker == pid)
    os.kill(pid, signal.SIGKILL)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1, err
    assert table(out) == {job: "failed" if job == lost else table(out)[job] for job in range(3)}
    assert {kind for job, kind in table(out).items() if job != lost} <= {"completed", "resumed"}
    assert "was killed" in out[out.rindex("job  outcome") :]
    assert "Traceback" not in err
    again = call(rough, *words)
    assert again.returncode == 0
    assert table(again.stdout) == {job: "resumed" if job == lost else "skipped" for job in range(3)}
    assert call(calm, *words).returncode == 0
    assert by_name(rough) == by_name(calm)


@pytest.mark.slow
def test_every_worker_that_is_killed_costs_its_own_job_only(tmp_path: Path) -> None:
    """Also the second one, when joblib has ended the processes of the other jobs once."""
    conf = tmp_path / "conf"
    (conf / "init").mkdir(parents=True)
    (conf / "init" / "deadly.yaml").write_text("_target_: deadly.deadly_\n_partial_: true\nkills: false\n")
    (conf / "deadly.py").write_text(
        "import os, signal\n\n"
        "def deadly_(model, generator, *, kills: bool = False):\n"
        "    if kills:\n        os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    words = ("--config-dir", str(conf), "-m", "init=deadly", "init.kills=true,false", "seed=0,1", "trainer.epochs=1")
    done = call(tmp_path, *words, "hydra/launcher=joblib", "hydra.launcher.n_jobs=2")
    assert done.returncode == 1
    assert table(done.stdout) == {0: "failed", 1: "failed", 2: "completed", 3: "completed"}
    assert done.stdout.count("its process was killed") == 2


def test_a_single_joblib_worker_takes_one_job_after_the_other(tmp_path: Path) -> None:
    """As on a machine with no more cores than a job's threads; joblib then starts no process for it."""
    done = call(tmp_path, "-m", "trainer.epochs=1", "seed=0,1", "hydra/launcher=joblib", "hydra.launcher.n_jobs=1")
    assert done.returncode == 0, done.stderr
    assert table(done.stdout) == {0: "completed", 1: "completed"}


def test_jobs_that_share_a_run_count_once_in_the_results(tmp_path: Path) -> None:
    done = call(tmp_path, "-m", "trainer.epochs=1", "threads=1,2")
    assert table(done.stdout) == {0: "completed", 1: "skipped"}
    assert done.stdout[done.stdout.rindex("results ") :].splitlines()[2].split()[1] == "1"


def test_an_experiments_runs_lie_in_its_own_directory(tmp_path: Path) -> None:
    done = call(tmp_path, "experiment=kappa_stress", "trainer.epochs=1")
    assert done.returncode == 0, done.stderr
    assert only_directory(tmp_path).parent.name == "kappa_stress"
    assert record(only_directory(tmp_path))["identity"]["experiment"] == "kappa_stress"
