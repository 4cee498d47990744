"""A run goes on from the newest good state, one process at a time, and says what it meets."""

import errno
import resource
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from run_process import (
    Instant,
    call,
    command,
    environment,
    frozen,
    kill,
    only_directory,
    record,
    results,
    rewrite,
    run,
    thaw,
    untimed,
)

from cmr_runner.runs.identity import document_hash, recorded_document

WORDS = ("trainer.epochs=12",)


def interrupted(root: Path, number: int = signal.SIGTERM) -> tuple[int, str, str]:
    """Start WORDS in `root`, signal it within its third epoch, and give what it said."""
    process = frozen(root, Instant("metrics.csv", 3, calls=1000), *WORDS)
    process.send_signal(number)
    out, err = thaw(process)
    return process.returncode, out, err


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run directory of WORDS left alone."""
    root = tmp_path_factory.mktemp("calm")
    assert call(root, *WORDS).returncode == 0
    return only_directory(root)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of a run of WORDS that was interrupted."""
    root = tmp_path_factory.mktemp("stopped")
    code, out, err = interrupted(root)
    assert code == 128 + signal.SIGTERM, (out, err)
    return root


@pytest.fixture
def root(stopped: Path, tmp_path: Path) -> Path:
    """A copy of it to go on with."""
    return Path(shutil.copytree(stopped, tmp_path / "root"))


def test_an_interrupted_run_says_how_to_go_on_and_equals_one_left_alone(root: Path, calm: Path) -> None:
    directory = only_directory(root)
    assert record(directory)["status"] == "interrupted"
    done = call(root, *WORDS)
    assert done.returncode == 0, done.stderr
    assert "resumed after epoch" in done.stdout
    assert results(directory) == results(calm)
    assert record(directory)["status"] == "completed"
    assert len(record(directory)["provenance"]["resumes"]) == 1


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_ends_the_run_at_the_next_step_with_the_command_to_go_on(
    number: signal.Signals, calm: Path, tmp_path: Path
) -> None:
    directory = tmp_path / "outputs" / "single" / calm.name
    code, out, _ = interrupted(tmp_path, number)
    assert code == 128 + number
    assert out.splitlines()[-1].startswith("interrupted; go on with: python -m cmr_runner ")
    assert WORDS[0] in out.splitlines()[-1]
    assert record(directory)["status"] == "interrupted"
    whole = untimed((calm / "metrics.csv").read_text())
    so_far = untimed((directory / "metrics.csv").read_text())
    assert so_far == whole[: len(so_far)]


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-200])


def flip_bit(path: Path) -> None:
    """Of a number in the middle of the model's weights, where torch.load sees nothing wrong."""
    blob = bytearray(path.read_bytes())
    blob[len(blob) // 2] ^= 64
    path.write_bytes(blob)


def zero_range(path: Path) -> None:
    blob = path.read_bytes()
    path.write_bytes(blob[: len(blob) // 3] + bytes(64) + blob[len(blob) // 3 + 64 :])


def make_foreign(path: Path) -> None:
    from cmr_runner.training.checkpoint import pack, unpack

    identity = path.parent.name[-8:]
    path.write_bytes(pack(unpack(path.read_bytes(), identity=identity), identity="deadbeef"))


def change_shapes(path: Path) -> None:
    import torch

    from cmr_runner.training.checkpoint import pack, unpack

    identity = path.parent.name[-8:]
    state = unpack(path.read_bytes(), identity=identity)
    name = next(iter(state["trainer"]["model"]))
    state["trainer"]["model"][name] = torch.zeros(3, 3)
    path.write_bytes(pack(state, identity=identity))


def make_executable_pickle(path: Path) -> None:
    import torch

    class Runs:
        def __reduce__(self) -> tuple:
            return (Path.touch, (path.with_name("code-ran"),))

    torch.save(Runs(), path)


SPOILERS = {
    "truncated": truncate,
    "a bit": flip_bit,
    "zeros": zero_range,
    "empty": lambda path: path.write_bytes(b""),
    "foreign": make_foreign,
    "other shapes": change_shapes,
    "code": make_executable_pickle,
}


@pytest.mark.parametrize("how", SPOILERS)
def test_a_bad_newest_checkpoint_is_set_aside_for_the_one_before(how: str, root: Path, calm: Path) -> None:
    directory = only_directory(root)
    SPOILERS[how](directory / "checkpoint.pt")
    done = call(root, *WORDS)
    assert done.returncode == 0, done.stderr
    assert "checkpoint.pt cannot be used" in done.stderr
    assert "resumed after epoch" in done.stdout
    assert (directory / "checkpoint.pt.bad").exists()
    assert not (directory / "code-ran").exists()
    assert results(directory) == results(calm)


@pytest.mark.parametrize("trouble", [OSError(errno.EIO, "Input/output error"), MemoryError("no room")])
def test_a_checkpoint_that_could_not_be_read_now_is_kept_for_later(
    trouble: Exception, root: Path, calm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cmr_runner.training.loop import Trainer

    def fails(self: Trainer, state: object) -> None:
        raise trouble

    directory = only_directory(root)
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "load_state_dict", fails)
        assert call(root, *WORDS).returncode == 1
    assert not list(directory.glob("*.bad"))
    assert call(root, *WORDS).returncode == 0
    assert results(directory) == results(calm)


def test_with_no_good_checkpoint_the_run_starts_from_the_beginning(root: Path, calm: Path) -> None:
    directory = only_directory(root)
    truncate(directory / "checkpoint.pt")
    change_shapes(directory / "checkpoint.prev.pt")
    done = call(root, *WORDS)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("cannot be used") == 2
    assert "resumed" not in done.stdout
    assert results(directory) == results(calm)


def test_a_resume_with_other_threads_or_versions_warns_by_name(root: Path) -> None:
    directory = only_directory(root)
    content = record(directory)
    content["provenance"]["versions"]["torch"] = "1.0"
    content["provenance"]["threads"] = 4
    rewrite(directory, content)
    done = call(root, *WORDS)
    assert done.returncode == 0
    (warning,) = done.stderr.splitlines()
    assert "torch was 1.0, is" in warning
    assert "threads was 4, is 1" in warning
    assert record(directory)["provenance"]["resumes"][0]["threads"] == 1


def test_records_that_lag_behind_the_checkpoint_are_written_anew(root: Path, calm: Path) -> None:
    directory = only_directory(root)
    (directory / "metrics.csv").write_text("epoch\n0\n")
    (directory / "layers.csv").unlink()
    assert call(root, *WORDS).returncode == 0
    assert results(directory) == results(calm)


def test_another_configurations_directory_is_never_written(root: Path) -> None:
    directory = only_directory(root)
    content = record(directory)
    content["config"]["trainer"]["epochs"] += 1
    content["identity"]["hash"] = document_hash(recorded_document(content))
    rewrite(directory, content)
    before = (directory / "checkpoint.pt").read_bytes()
    done = call(root, *WORDS)
    assert done.returncode == 1
    assert "another configuration" in done.stderr
    assert (directory / "checkpoint.pt").read_bytes() == before


@pytest.mark.slow
def test_a_second_process_says_who_holds_the_run_and_a_killed_holder_leaves_no_lock(calm: Path, tmp_path: Path) -> None:
    directory = tmp_path / "outputs" / "single" / calm.name
    first = frozen(tmp_path, Instant("metrics.csv", 2), *WORDS)  # alive and holding, for as long as the second needs
    second = call(tmp_path, *WORDS)
    assert second.returncode == 3
    assert f"process {first.pid} " in second.stderr
    kill(first)
    third = call(tmp_path, *WORDS)
    assert third.returncode == 0, third.stderr
    assert results(directory) == results(calm)


def test_force_runs_again_and_leaves_one_directory(calm: Path, tmp_path: Path) -> None:
    assert call(tmp_path, *WORDS).returncode == 0
    directory = only_directory(tmp_path)
    (directory / "notes.txt").write_text("mine")
    (directory / "model.pt").write_bytes(b"old")
    done = call(tmp_path, *WORDS, "force=true")
    assert done.returncode == 0
    assert (directory / "notes.txt").read_text() == "mine"
    assert not directory.with_name(f"{directory.name}.old").exists()
    assert results(directory) == results(calm)


@pytest.mark.slow
def test_a_killed_forced_run_keeps_the_old_result_until_the_new_one_is_complete(calm: Path, tmp_path: Path) -> None:
    directory = tmp_path / "outputs" / "single" / calm.name
    shutil.copytree(calm, directory)
    old = directory.with_name(f"{directory.name}.old")
    kill(frozen(tmp_path, Instant("metrics.csv", 3), *WORDS, "force=true"))
    assert results(old) == results(calm)
    done = call(tmp_path, *WORDS)
    assert done.returncode == 0
    assert "resumed after epoch" in done.stdout
    assert not old.exists()
    assert results(directory) == results(calm)


def limit_file_size(size: int) -> None:
    # Writing past it fails with EFBIG: the same path as ENOSPC, without a file system of one's own.
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


@pytest.mark.slow
def test_no_room_is_one_line_and_leaves_whole_files(calm: Path, tmp_path: Path) -> None:
    limit = (calm / "checkpoint.pt").stat().st_size - 2000  # reached after a few epochs: the records grow in it
    done = subprocess.run(
        command(*WORDS),
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        preexec_fn=lambda: limit_file_size(limit),
        check=False,
    )
    assert done.returncode == 1, done.stderr
    line = done.stderr.splitlines()[-1]
    assert "no room to write" in line
    directory = only_directory(tmp_path)
    assert record(directory)["status"] == "failed"
    assert not list(directory.glob(".*.tmp-*"))
    last = call(tmp_path, *WORDS)
    assert last.returncode == 0, last.stderr
    assert results(directory) == results(calm)


@pytest.mark.slow
@pytest.mark.parametrize("calls", [0, 1000], ids=["within a write", "between two"])
def test_a_directory_that_disappears_is_an_error_and_is_not_made_again(calls: int, calm: Path, tmp_path: Path) -> None:
    directory = tmp_path / "outputs" / "single" / calm.name
    process = frozen(tmp_path, Instant("spectra.csv", 2, calls), *WORDS)
    shutil.rmtree(directory)
    _, err = thaw(process)
    assert process.returncode == 1
    assert "disappeared" in err.splitlines()[-1]
    assert not directory.exists()


def test_no_room_for_a_checkpoint_ends_the_run_as_failed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cmr_runner.runs.directory import RunDirectory

    def full(self: RunDirectory, *arguments: object, **named: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(RunDirectory, "save_epoch", full)
    done = call(root, *WORDS)
    assert done.returncode == 1
    assert "no room to write" in done.stderr.splitlines()[-1]
    assert record(only_directory(root))["status"] == "failed"


def test_a_run_that_another_experiment_completed_under_equal_conditions_is_copied(calm: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    shutil.copytree(calm.parents[2], root)
    words = (*WORDS, "experiment=kappa_stress")
    source = root / "outputs" / "single" / calm.name
    copy = root / "outputs" / "kappa_stress" / calm.name

    done = call(root, *words)
    assert done.returncode == 0, done.stderr
    assert f"copied from single/{calm.name}" in done.stdout + done.stderr
    assert results(copy) == results(source)
    assert record(copy)["identity"]["experiment"] == "kappa_stress"
    assert record(copy)["provenance"]["copied_from"] == f"single/{calm.name}"

    shutil.rmtree(copy)
    other = record(source)
    other["provenance"]["code"] = "another"
    rewrite(source, other)
    assert call(root, *words).returncode == 0
    assert "copied_from" not in record(copy)["provenance"]
    assert results(copy) == results(source)


def test_a_run_that_used_other_vector_instructions_is_not_copied(calm: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    shutil.copytree(calm.parents[2], root)
    done = run(root, *WORDS, "experiment=kappa_stress", ATEN_CPU_CAPABILITY="default")
    assert done.returncode == 0, done.stderr
    made = record(root / "outputs" / "kappa_stress" / calm.name)["provenance"]
    assert made["instructions"] == "DEFAULT" != record(calm)["provenance"]["instructions"]
    assert "copied_from" not in made


@pytest.mark.parametrize("word", ["force=true", "force=True", "++force=TRUE"])
def test_the_command_to_go_on_does_not_start_over(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from cmr_runner.commands.run import COMMAND_VARIABLE, command_to_go_on

    monkeypatch.setenv(COMMAND_VARIABLE, f"cmr-run {word} seed=1")
    assert command_to_go_on() == "cmr-run seed=1"
