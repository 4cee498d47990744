"""dry=true: what a command would do, without doing any of it."""

import re
from pathlib import Path

from run_process import call, directories, record, rewrite

from cmr_runner.runs.lock import run_lock

SWEEP = ("-m", "trainer.epochs=2")


def files(root: Path) -> dict[Path, tuple[int, int]]:
    return {path: (path.stat().st_size, path.stat().st_mtime_ns) for path in root.rglob("*")}


def foreseen(root: Path, *words: str, code: int = 0) -> tuple[list[str], str]:
    """What dry=true says of each job, and its last line; nothing is written."""
    before = files(root)
    done = call(root, *words, "dry=true")
    assert done.returncode == code, done.stderr
    assert files(root) == before
    lines = done.stdout.splitlines()
    assert lines[-1].endswith("nothing was run")
    return [line.strip().partition("  ")[2] for line in lines[2:-1]], lines[-1]


def of_seed(root: Path, seed: int) -> Path:
    (found,) = (directory for directory in directories(root) if f"-seed{seed}-" in directory.name)
    return found


def test_dry_tells_complete_resuming_running_and_new_jobs_apart(tmp_path: Path) -> None:
    assert call(tmp_path, *SWEEP, "seed=0,1,2,3").returncode == 0
    for seed, status in ((1, "interrupted"), (2, "diverged")):
        kept = record(of_seed(tmp_path, seed))
        final = {**kept["final"], "epoch": 1}
        rewrite(of_seed(tmp_path, seed), {**kept, "status": status, "final": final, "error": {"message": "too large"}})
    with run_lock(of_seed(tmp_path, 3), "another command"):
        jobs, last = foreseen(tmp_path, *SWEEP, "seed=0,1,2,3,4")
    assert [re.split("  +", job)[0] for job in jobs] == [
        "complete",
        "would resume",
        "diverged",
        "running",
        "would start",
    ]
    assert jobs[1].endswith("after epoch 1")
    assert jobs[2].endswith("too large")
    assert last.startswith("5 jobs: 1 complete, 1 would resume, 1 diverged, 1 running, 1 would start; about ")
    assert "by finished runs of their kind" in last


def test_dry_of_a_command_that_nothing_is_known_of_says_so_and_makes_no_directory(tmp_path: Path) -> None:
    jobs, last = foreseen(tmp_path, *SWEEP, "seed=0,1")
    assert [job.partition("  ")[0] for job in jobs] == ["would start"] * 2
    assert "no finished run of their kind" in last
    assert list(tmp_path.iterdir()) == []


def test_dry_of_a_single_run_and_of_one_that_would_be_copied(tmp_path: Path) -> None:
    assert call(tmp_path, "trainer.epochs=1").returncode == 0
    (job,), _ = foreseen(tmp_path, "trainer.epochs=1")
    assert job.startswith("complete")
    (job,), _ = foreseen(tmp_path, "trainer.epochs=1", "name=other")
    assert job.startswith("would be copied")
    assert job.endswith("from single")
    (job,), _ = foreseen(tmp_path, "trainer.epochs=1", "force=true")
    assert job.startswith("would start")


def test_dry_names_what_is_wrong_and_never_runs(tmp_path: Path) -> None:
    jobs, _ = foreseen(tmp_path, *SWEEP, "seed=-1,0", code=2)
    assert "seed must be an integer" in jobs[0]
    jobs, _ = foreseen(tmp_path, *SWEEP, "regularizer=cmr", "regularizer.lam=abc,0.1", code=2)
    assert jobs[0].startswith("would fail")
    assert "regularizer.lam must be" in jobs[0]
    assert jobs[1].startswith("would start")
    for words, complaint in (
        (("dry=maybe",), "dry must be true or false, got 'maybe'"),
        (("-m", "dry=true", "regularizer=cmr,cmrr"), "regularizer=cmrr: no such option"),
        (("-m", "dry=true,false", "trainer.epochs=1"), ""),
    ):
        done = call(tmp_path, *words)
        assert done.returncode
        assert complaint in done.stderr
    assert "dry=true is for a whole command" in done.stdout  # the other job ran, as it was asked to
