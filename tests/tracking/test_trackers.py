"""What the trackers were told, read back by their own libraries' readers."""

import json
import os
import threading
from pathlib import Path

import pytest
from run_process import call, directories
from synthetic_runs import write_run

from cmr_runner.commands.report import main as report
from cmr_runner.runs.listener import Beginning, Listener
from cmr_runner.runs.records import Records
from cmr_runner.tracking.background import Background
from cmr_runner.tracking.tracker import Tracker

NAME = "cmr-seed0-01234567"
PLAN = [("layers.0.weight", (8, 12), "cmr")]
CONFIG = {"seed": 0, "regularizer": {"_target_": "a.b", "lam": 0.02}}


def row(epoch: int) -> tuple[dict, list[dict], list[dict]]:
    metrics = {"epoch": epoch, "train_loss": None if epoch == 0 else 1.0 / epoch, "kappa_mean": 2.0 + epoch}
    return metrics, [{"epoch": epoch, "layer": "layers.0.weight", "kappa": 3.0 + epoch, "sigma_max": 1.0}], []


def listened(make, root: Path, between=lambda: None) -> None:
    """One run in two starts: interrupted after epoch 2, resumed and completed with epoch 4."""
    records = Records()
    started(make(), root, records, range(3), None)
    between()
    started(make(), root, records, range(3, 5), 2)


def started(tracker: Tracker, root: Path, records: Records, epochs: range, resumed_from: int | None) -> None:
    choices = {"regularizer": "cmr", "layers@regularizer.layers": "weights"}
    tracker.begin(Beginning(root / NAME, "single", choices, CONFIG, records, PLAN, resumed_from=resumed_from))
    for epoch in epochs:
        records.add_epoch(*row(epoch))
        tracker.epoch(*row(epoch)[:2])
    tracker.end("completed" if 4 in epochs else "interrupted", "")


def scalars(directory: Path, tag: str) -> list[tuple[int, float]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util.tensor_util import make_ndarray

    events = EventAccumulator(str(directory)).Reload()
    return [(event.step, float(make_ndarray(event.tensor_proto))) for event in events.Tensors(tag)]


def test_tensorboard_holds_every_epoch_once_after_a_resume(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    from cmr_runner.tracking.tensorboard import TensorBoard

    listened(lambda: TensorBoard(str(tmp_path)), tmp_path)
    directory = tmp_path / "single" / NAME
    assert scalars(directory, "kappa_mean") == [(epoch, 2.0 + epoch) for epoch in range(5)]
    assert scalars(directory, "kappa/layers.0.weight") == [(epoch, 3.0 + epoch) for epoch in range(5)]
    events = EventAccumulator(str(directory)).Reload()
    assert {"layers/kappa", "plan", "settings", "status"} <= set(events.Tags()["tensors"])
    assert events.Tensors("status")[-1].tensor_proto.string_val[0] == b"completed"
    assert b"regularizer.lam | 0.02" in events.Tensors("settings")[-1].tensor_proto.string_val[0]
    assert b"layers.0.weight | 8" in events.Tensors("plan")[-1].tensor_proto.string_val[0]


@pytest.mark.slow
def test_mlflow_holds_one_run_with_every_epoch_once_after_a_resume(tmp_path: Path) -> None:
    from mlflow import MlflowClient

    from cmr_runner.tracking.mlflow import MLflow

    listened(lambda: MLflow(str(tmp_path)), tmp_path)
    client = MlflowClient(tracking_uri=f"sqlite:///{tmp_path}/mlflow.db")
    experiment = client.get_experiment_by_name("single")
    (run,) = client.search_runs([experiment.experiment_id])
    assert (run.info.run_name, run.info.status) == (NAME, "FINISHED")
    assert run.data.params["layers_regularizer.layers"] == "weights"
    assert (run.data.params["regularizer"], run.data.params["regularizer.lam"]) == ("cmr", "0.02")
    for name, first in (("kappa_mean", 2.0), ("kappa/layers.0.weight", 3.0)):
        history = client.get_metric_history(run.info.run_id, name)
        assert [(one.step, one.value) for one in history] == [(epoch, first + epoch) for epoch in range(5)]
    assert run.data.tags["cmr_runner.status"] == "completed"
    assert [file.path for file in client.list_artifacts(run.info.run_id)] == ["plan.md"]


@pytest.mark.slow
def test_an_mlflow_run_whose_opening_failed_is_made_whole_by_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow import MlflowClient

    from cmr_runner.tracking.mlflow import MLflow

    def full(*arguments, **options) -> None:
        raise OSError(28, "No space left on device")

    records = Records()
    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, "log_batch", full)
        with pytest.raises(OSError, match="No space"):
            started(MLflow(str(tmp_path)), tmp_path, records, range(3), None)
    for epoch in range(3):  # the run went on without its tracker
        records.add_epoch(*row(epoch))
    started(MLflow(str(tmp_path)), tmp_path, records, range(3, 5), 2)
    client = MlflowClient(tracking_uri=f"sqlite:///{tmp_path}/mlflow.db")
    (run,) = client.search_runs([client.get_experiment_by_name("single").experiment_id])
    assert run.data.params["regularizer.lam"] == "0.02"
    assert [one.step for one in client.get_metric_history(run.info.run_id, "kappa_mean")] == list(range(5))
    assert [file.path for file in client.list_artifacts(run.info.run_id)] == ["plan.md"]


def wandb_files(root: Path) -> list[Path]:
    return sorted((root / "single" / NAME / "wandb").glob("offline-run-*/run-*.wandb"))


def wandb_kappa(files: list[Path]) -> list[tuple[int, float]]:
    from cmr_runner.tracking.wandb import records

    kappa = []
    for record in (record for file in files for record in records(file)):
        items = {item.key or "/".join(item.nested_key): item.value_json for item in record.history.item}
        if "kappa_mean" in items:
            kappa.append((int(float(items["_step"])), float(items["kappa_mean"])))
    return kappa


@pytest.mark.slow
def test_wandb_continues_one_run_offline(tmp_path: Path) -> None:
    import wandb

    from cmr_runner.tracking.wandb import WandB, records

    listened(lambda: WandB(str(tmp_path)), tmp_path, wandb.teardown)
    wandb.teardown()  # as the end of a process does: wandb's own process writes the files, and may be behind
    files = wandb_files(tmp_path)
    assert len(files) == 2
    assert len({file.stem for file in files}) == 1  # two directories of one run: its id is in the name
    assert wandb_kappa(files) == [(epoch, 2.0 + epoch) for epoch in range(5)]
    settings = {item.key: item.value_json for record in records(files[1]) for item in record.run.config.update}
    assert settings["regularizer.lam"] == "0.02"
    assert "layers.0.weight | 8 × 12 | cmr" in json.loads(settings["plan"])


@pytest.mark.slow
def test_epochs_that_wandb_lost_in_a_kill_are_logged_again(tmp_path: Path) -> None:
    import wandb

    from cmr_runner.tracking.wandb import WandB, last_epoch

    def cut() -> None:
        wandb.teardown()
        (file,) = wandb_files(tmp_path)
        assert last_epoch(file) == 2
        while last_epoch(file) > 0:
            os.truncate(file, file.stat().st_size - 16)

    listened(lambda: WandB(str(tmp_path)), tmp_path, cut)
    wandb.teardown()
    first, second = wandb_files(tmp_path)
    assert wandb_kappa([first]) == [(0, 2.0)]
    assert wandb_kappa([second]) == [(epoch, 2.0 + epoch) for epoch in range(1, 5)]


def test_the_jobs_of_a_sweep_do_not_mix_and_a_logger_is_no_part_of_a_run(tmp_path: Path) -> None:
    words = ("-m", "trainer.epochs=1", "seed=0,1")
    assert call(tmp_path, *words, "logger=tensorboard").returncode == 0
    for directory in directories(tmp_path):
        assert [step for step, _ in scalars(tmp_path / "outputs/tensorboard/single" / directory.name, "epoch")] == [
            0,
            1,
        ]
    assert "2 skipped" in call(tmp_path, *words).stdout


class Broken(Listener):
    def begin(self, run: Beginning) -> None:
        raise OSError(28, "No space left on device")


class Absent(Listener):
    def __init__(self) -> None:
        import no_such_tracker  # noqa: F401


class Stuck(Listener):
    def __init__(self) -> None:
        threading.Event().wait()


@pytest.mark.parametrize(
    ("make", "word"), [(Broken, "No space left"), (Absent, "pip install 'cmr-runner[x]'"), (Stuck, "left behind")]
)
def test_a_tracker_that_fails_warns_once_and_holds_nothing_up(tmp_path: Path, make, word: str) -> None:
    said: list[str] = []
    tracker = Background("x", make, said.append, patience=1.0)
    tracker.begin(Beginning(tmp_path, "single", {}, {}, Records()))
    for epoch in range(3):
        tracker.epoch(*row(epoch)[:2])
    tracker.end("completed", "")
    (warning,) = said
    assert word in warning


def exported(root: Path, tracker: str) -> Path:
    write_run(root / "outputs")
    assert report(["--export", tracker, str(root / "outputs")]) == 0
    return root / "outputs" / tracker


def is_png(content: bytes) -> bool:
    return content.startswith(b"\x89PNG") and len(content) > 5000


def test_finished_runs_are_exported_to_tensorboard(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (directory,) = (path.parent for path in exported(tmp_path, "tensorboard").glob("*/*/events*"))
    assert "wrote 1 runs" in capsys.readouterr().out
    assert [step for step, _ in scalars(directory, "kappa_mean")] == list(range(6))
    events = EventAccumulator(str(directory)).Reload()
    assert b"| cmr |" in events.Tensors("plan")[-1].tensor_proto.string_val[0]
    for name in ("curves", "layers", "spectra"):
        assert is_png(events.Images(f"figures/{name}")[-1].encoded_image_string)


@pytest.mark.slow
def test_finished_runs_are_exported_to_mlflow(tmp_path: Path) -> None:
    from mlflow import MlflowClient

    place = exported(tmp_path, "mlflow")
    client = MlflowClient(tracking_uri=f"sqlite:///{place}/mlflow.db")
    (run,) = client.search_runs([client.get_experiment_by_name("kappa_stress").experiment_id])
    assert run.info.status == "FINISHED"
    assert [one.step for one in client.get_metric_history(run.info.run_id, "kappa_mean")] == list(range(6))
    assert {file.path for file in client.list_artifacts(run.info.run_id)} == {"plan.md", "figures"}
    drawn = list(place.glob("artifacts/kappa_stress/*/artifacts/figures/*.png"))
    assert len(drawn) >= 3
    assert all(is_png(file.read_bytes()) for file in drawn)


@pytest.mark.slow
def test_a_run_that_goes_on_stays_open_in_mlflow(tmp_path: Path) -> None:
    from mlflow import MlflowClient

    write_run(tmp_path, status="running", rows=3, layers=1)
    assert report(["--export", "mlflow", str(tmp_path)]) == 0
    client = MlflowClient(tracking_uri=f"sqlite:///{tmp_path}/mlflow/mlflow.db")
    (run,) = client.search_runs([client.get_experiment_by_name("kappa_stress").experiment_id])
    assert (run.info.status, run.info.end_time) == ("RUNNING", None)
    assert run.data.tags["cmr_runner.status"] == "running"
    assert [one.step for one in client.get_metric_history(run.info.run_id, "kappa_mean")] == list(range(3))


@pytest.mark.slow
def test_finished_runs_are_exported_to_wandb(tmp_path: Path) -> None:
    place = exported(tmp_path, "wandb")
    (file,) = place.glob("kappa_stress/*/wandb/offline-run-*/run-*.wandb")
    assert [step for step, _ in wandb_kappa([file])] == list(range(6))
    drawn = list(file.parent.glob("files/media/images/figures/*.png"))
    assert len(drawn) >= 3
    assert all(is_png(picture.read_bytes()) for picture in drawn)
