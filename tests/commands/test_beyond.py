"""The other data sets and networks through the command, on small stand-ins for the downloads."""

import csv
import hashlib
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from run_process import Instant, call, frozen, kill, only_directory, record, results, run

from cmr_runner.data import cifar10, mnist, shakespeare
from cmr_runner.data.idx import write_idx

ONE_EPOCH = ("trainer.epochs=1", "trainer.batch_size=8", "progress=none", "spectral_threads=1")
IMAGE_MODELS = {
    "resnet": ("model.depth=8", "model.width=4"),
    "plain": ("model.depth=8", "model.width=4"),
    "vit": ("model.depth=1", "model.width=8", "model.heads=2"),
}


def last_row(root: Path) -> dict[str, str]:
    with (only_directory(root) / "metrics.csv").open() as file:
        return list(csv.DictReader(file))[-1]


@pytest.fixture
def images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A root with CIFAR-10's files, four images each."""
    generator = np.random.default_rng(0)
    folder = tmp_path / "data" / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    for name in (*cifar10.TRAIN, cifar10.TEST):
        values = generator.integers(256, size=(4, 3073), dtype=np.uint8)
        values[:, 0] %= 10
        values.tofile(folder / name)
        monkeypatch.setitem(cifar10.SHA1S, name, hashlib.sha1(values.tobytes()).hexdigest())
    return tmp_path / "data"


@pytest.mark.parametrize("model", IMAGE_MODELS)
def test_a_network_trains_on_cifar10_with_validation_and_a_schedule(model: str, images: Path, tmp_path: Path) -> None:
    words = (f"dataset.root={images}", "dataset.validation=4", f"model={model}", *IMAGE_MODELS[model])
    done = call(tmp_path, "dataset=cifar10", *words, "schedule=cosine", "init=kaiming", *ONE_EPOCH, base=())
    assert done.returncode == 0, done.stderr
    row = last_row(tmp_path)
    assert row["step"] == "2"
    assert 0 <= float(row["val_accuracy"]) <= 1
    assert float(row["val_loss"]) > 0
    assert 0 < float(row["lr"]) < 1e-3


@pytest.mark.parametrize("words", [("optimizer=muon", "regularizer=cmr_by_head"), ("model.tied=true",)])
def test_gpt_trains_on_characters_in_nats_and_perplexity(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "to be or not to be, that is the question. " * 12
    (tmp_path / "data" / "shakespeare").mkdir(parents=True)
    (tmp_path / "data" / "shakespeare" / shakespeare.FILE).write_text(text)
    monkeypatch.setattr(shakespeare, "SHA256", hashlib.sha256(text.encode()).hexdigest())
    base = ("dataset=shakespeare", f"dataset.root={tmp_path / 'data'}", "dataset.context=8", "init=glorot_uniform")
    base += ("model=gpt", "model.depth=1", "model.width=8", "model.heads=2")
    done = call(tmp_path, *words, *ONE_EPOCH, base=base)
    assert done.returncode == 0, done.stderr
    row = last_row(tmp_path)
    assert float(row["test_loss"]) < 2 * math.log(len(set(text)))  # nats of one character, not of a window
    for part in ("test", "val"):
        assert float(row[f"{part}_perplexity"]) == pytest.approx(math.exp(float(row[f"{part}_loss"])))
    long = call(tmp_path, "dataset.context=500", *ONE_EPOCH, base=base)
    assert long.returncode == 2
    assert "dataset.context must be below 25, got 500" in long.stderr


def test_a_stream_of_tasks_says_which_task_an_epoch_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = tmp_path / "data" / "MNIST" / "raw"
    raw.mkdir(parents=True)
    generator = np.random.default_rng(0)
    digests = {}
    for name in mnist.MNIST.digests:
        size = (16, 28, 28) if "images" in name else (16,)
        write_idx(raw / name, generator.integers(256 if len(size) == 3 else 10, size=size, dtype=np.uint8))
        digests[name] = hashlib.md5((raw / name).read_bytes()).hexdigest()
    monkeypatch.setattr(mnist, "MNIST", replace(mnist.MNIST, digests=digests))
    words = (f"dataset.root={tmp_path / 'data'}", "dataset.epochs_per_task=2", "trainer.epochs=3", "progress=none")
    done = call(tmp_path, "dataset=permuted_mnist", *words, "model.depth=2", "model.width=8", base=())
    assert done.returncode == 0, done.stderr
    with (only_directory(tmp_path) / "metrics.csv").open() as file:
        assert [row["task"] for row in csv.DictReader(file)] == ["0", "0", "0", "1"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("dataset.validation=32",), "dataset.validation must be an integer in [0, 31], got 32"),
        (("dataset.validation=-1",), "dataset.validation must be an integer in [0, 31], got -1"),
        (("trainer.precision=fp8",), "trainer.precision must be one of float32, bf16, got 'fp8'"),
        (("schedule=cosine", "schedule.warmup=2"), "schedule.warmup must be in [0, 1), got 2"),
        (("schedule=linear",), "schedule=linear: no such option; one of constant, cosine, one_cycle"),
        (
            ("dataset.shape=[1,8,8]", "model=vit", "model.patch=3"),
            "model.patch must be a divisor of the image, 8 × 8, got 3",
        ),
        (("dataset.shape=[1,8,8]", "model=vit", "model.heads=5"), "model.heads must be a divisor of width, 96, got 5"),
        (("model=gpt",), "model: it cannot take synthetic, torch.float32 (12,)"),
        (("model=resnet",), "model: it needs images (channels, height, width), the data set has (12,)"),
    ],
)
def test_a_mistake_is_one_line_with_the_key_and_what_is_allowed(
    words: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    base = ("dataset=synthetic", "dataset.train=32", "dataset.test=32", "dataset.shape=[12]", "trainer.epochs=1")
    done = call(tmp_path, *words, base=base)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.rglob("run.json"))


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["cosine", "one_cycle"])
def test_schedule_validation_and_bf16_survive_a_kill_bit_for_bit(schedule: str, tmp_path: Path) -> None:
    words = ("trainer.epochs=6", f"schedule={schedule}", "dataset.validation=8", "trainer.precision=bf16")
    words += ("optimizer=muon",) if schedule == "cosine" else ()
    calm, rough = tmp_path / "calm", tmp_path / "rough"
    calm.mkdir(), rough.mkdir()
    assert call(calm, *words).returncode == 0
    kill(frozen(rough, Instant("metrics.csv", 3, calls=1000), *words))
    last = run(rough, *words)
    assert last.returncode == 0, last.stderr
    assert "resumed after epoch" in last.stdout
    assert results(only_directory(rough)) == results(only_directory(calm))
    assert record(only_directory(rough))["config"]["trainer"]["precision"] == "bf16"


def test_bf16_changes_the_numbers_but_not_the_training(tmp_path: Path) -> None:
    rows = []
    for precision in ("float32", "bf16"):
        (tmp_path / precision).mkdir()
        assert call(tmp_path / precision, "trainer.epochs=2", f"trainer.precision={precision}").returncode == 0
        rows.append(float(last_row(tmp_path / precision)["train_loss"]))
    assert rows[0] != rows[1]
    assert rows[1] == pytest.approx(rows[0], rel=0.02)
