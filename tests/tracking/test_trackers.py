"""What the trackers were told, read back by their own libraries' readers."""

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


def listened(make, root: Path) -> None:
    """One run in two starts: interrupted after epoch 2, resumed and completed with epoch 4."""
    records = Records()
    for epochs, resumed_from, status in ((range(3), None, "interrupted"), (range(3, 5), 2, "completed")):
        tracker: Tracker = make()
        choices = {"regularizer": "cmr", "layers@regularizer.layers": "weights"}
        run = Beginning(root / NAME, "single", choices, CONFIG, records, PLAN, resumed_from=resumed_from)
        tracker.begin(run)
        for epoch in epochs:
            records.add_epoch(*row(epoch))
            tracker.epoch(*row(epoch)[:2])
        tracker.end(status, "")


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
def test_wandb_continues_one_run_offline(tmp_path: Path) -> None:
    from wandb.proto.wandb_internal_pb2 import Record
    from wandb.sdk.internal.datastore import DataStore

    from cmr_runner.tracking.wandb import WandB

    listened(lambda: WandB(str(tmp_path)), tmp_path)
    files = sorted((tmp_path / "single" / NAME / "wandb").glob("offline-run-*/run-*.wandb"))
    assert len({file.stem for file in files}) == 1  # two directories of one run: its id is in the name
    kappa, settings = [], {}
    for file in files:
        store = DataStore()
        store.open_for_scan(str(file))
        while (data := store.scan_data()) is not None:
            record = Record.FromString(data)
            items = {item.key or "/".join(item.nested_key): item.value_json for item in record.history.item}
            if "kappa_mean" in items:
                kappa.append((int(float(items["_step"])), float(items["kappa_mean"])))
            settings |= {item.key: item.value_json for item in record.run.config.update}
    assert kappa == [(epoch, 2.0 + epoch) for epoch in range(5)]
    assert settings["regularizer.lam"] == "0.02"


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


def test_finished_runs_are_exported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "outputs")
    assert report(["--export", "tensorboard", str(tmp_path / "outputs")]) == 0
    assert "wrote 1 runs" in capsys.readouterr().out
    (directory,) = (path.parent for path in tmp_path.glob("outputs/tensorboard/*/*/events*"))
    assert len(scalars(directory, "kappa_mean")) > 1
