"""Data sets in memory: shapes, scaling, splits, order, and what the constructors refuse."""

import subprocess
import sys
from dataclasses import fields

import numpy as np
import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf

from cmr_runner.data.arguments import data_root
from cmr_runner.data.batches import epoch_order
from cmr_runner.data.dataset import Dataset
from cmr_runner.data.digits import bundled, digits
from cmr_runner.data.mnist import fashion_mnist, mnist
from cmr_runner.data.permuted import PermutedTasks
from cmr_runner.data.synthetic import synthetic


def test_epoch_order_visits_every_example_once():
    assert torch.equal(epoch_order(1000, seed=3, epoch=7).sort().values, torch.arange(1000))


def test_epoch_order_does_not_depend_on_what_ran_before():
    alone = epoch_order(500, seed=1, epoch=4)
    for epoch in range(4):
        epoch_order(500, seed=1, epoch=epoch)
    torch.manual_seed(99)
    torch.rand(10)
    assert torch.equal(epoch_order(500, seed=1, epoch=4), alone)


def test_epoch_order_leaves_the_global_generators_where_they_were():
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    epoch_order(100, seed=0, epoch=0)
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert np.array_equal(np.random.get_state()[1], numpy_state)  # noqa: NPY002


def test_epoch_orders_of_all_seeds_and_epochs_differ():
    # A plain seed + epoch, or a product, would repeat orders here.
    orders = {tuple(epoch_order(50, seed, epoch).tolist()) for seed in range(12) for epoch in range(12)}
    assert len(orders) == 144


def test_digits_are_standardised_images_with_balanced_classes():
    data = digits()
    assert data.input_shape == (1, 8, 8)
    assert (len(data.train_x), len(data.test_x)) == (1442, 355)
    assert data.train_x.mean().item() == pytest.approx(0, abs=1e-6)
    assert data.train_x.std(correction=0).item() == pytest.approx(1, abs=1e-6)
    assert data.test_y.bincount().tolist() == [
        count // 5 for count in (178, 182, 177, 183, 181, 182, 181, 179, 174, 180)
    ]


def test_digits_are_read_as_scikit_learn_reads_them_without_importing_it(monkeypatch):
    program = (
        "import sys; from cmr_runner.data.digits import bundled, digits; digits(); print('sklearn' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
    ours = bundled()
    monkeypatch.setattr("cmr_runner.data.digits.find_spec", lambda name: None)  # as if the file were elsewhere
    for read, loaded in zip(ours, bundled(), strict=True):
        assert read.dtype == loaded.dtype
        assert np.array_equal(read, loaded)


def test_digits_train_and_test_parts_are_all_of_scikit_learns_digits():
    from sklearn.datasets import load_digits

    bunch, data = load_digits(), digits()
    scaled = torch.cat([data.train_x, data.test_x]).flatten(1).double()
    # Undo the scaling: pixels are whole numbers 0 … 16.
    low, high = scaled.min(), scaled.max()
    pixels = ((scaled - low) / (high - low) * 16).round().int()
    assert sorted(map(tuple, pixels.tolist())) == sorted(map(tuple, bunch.data.astype(int).tolist()))


def test_limits_keep_the_first_examples():
    whole, part = digits(), digits(train_limit=20, test_limit=7)
    assert torch.equal(part.train_x, whole.train_x[:20])
    assert torch.equal(part.test_y, whole.test_y[:7])


@pytest.mark.parametrize("shape", [(5,), (3, 4, 6)])
def test_synthetic_data_has_the_sizes_asked_for_and_standard_features(shape):
    data = synthetic(shape=shape, classes=4, train=300, test=50)
    assert data.input_shape == shape
    assert (len(data.train_y), len(data.test_y), data.num_classes) == (300, 50, 4)
    assert set(data.train_y.tolist()) == {0, 1, 2, 3}
    torch.testing.assert_close(data.train_x.mean(0), torch.zeros(shape), atol=1e-5, rtol=0)
    torch.testing.assert_close(data.train_x.std(0, correction=0), torch.ones(shape), atol=1e-5, rtol=0)


def test_synthetic_data_comes_from_its_own_seed_alone():
    torch.manual_seed(1)
    first = synthetic(train=20, test=5)
    torch.manual_seed(2)
    assert torch.equal(synthetic(train=20, test=5).train_x, first.train_x)
    assert not torch.equal(synthetic(train=20, test=5, seed=1).train_x, first.train_x)


def test_synthetic_classes_can_be_told_apart():
    data = synthetic()
    centres = torch.stack([data.train_x[data.train_y == label].mean(0) for label in range(10)])
    nearest = torch.cdist(data.test_x, centres).argmin(1)
    assert (nearest == data.test_y).float().mean() > 0.8


def test_synthetic_data_of_one_training_example_is_finite():
    assert synthetic(train=1, test=3).test_x.isfinite().all()


def test_a_shape_from_a_yaml_list_builds_images():
    config = OmegaConf.create({"_target_": "cmr_runner.data.synthetic.synthetic", "shape": [1, 4, 4], "train": 8})
    assert instantiate(config).input_shape == (1, 4, 4)


def test_dataset_moves_to_a_device_whole():
    moved = synthetic(train=4, test=2).to("meta")
    assert {tensor.device.type for tensor in (moved.train_x, moved.train_y, moved.test_x, moved.test_y)} == {"meta"}
    assert moved.num_classes == 10


def test_dataset_refuses_labels_that_do_not_match_its_examples():
    x, y = torch.zeros(4, 2), torch.zeros(3, dtype=torch.int64)
    with pytest.raises(ValueError, match="4 examples"):
        Dataset("wrong", x, y, x, y, 2)


@pytest.mark.parametrize(
    ("build", "key", "value"),
    [
        (digits, "train_limit", 0),
        (digits, "test_limit", -3),
        (digits, "train_limit", 2.5),
        (mnist, "train_limit", True),
        (mnist, "std", 0.0),
        (mnist, "std", float("nan")),
        (mnist, "mean", "dark"),
        (mnist, "root", ""),
        (fashion_mnist, "root", 7),
        (fashion_mnist, "test_limit", 0),
        (synthetic, "classes", 1),
        (synthetic, "train", 0),
        (synthetic, "test", "many"),
        (synthetic, "spread", -1.0),
        (synthetic, "spread", float("inf")),
        (synthetic, "seed", -1),
        (synthetic, "shape", [2, 3]),
        (synthetic, "shape", [1, 0, 4]),
        (synthetic, "shape", "64"),
        (synthetic, "shape", 64),
    ],
)
def test_a_bad_value_gets_one_line_with_its_key_and_value(build, key, value):
    with pytest.raises(ValueError, match=rf"^{key} must be ") as caught:
        build(**{key: value})
    message = str(caught.value)
    assert repr(value) in message
    assert "\n" not in message


def test_a_root_that_is_a_file_is_refused(tmp_path):
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(ValueError, match=r"^root must be a directory"):
        mnist(root=file)


def test_the_default_root_is_in_the_users_cache(monkeypatch, tmp_path):
    import platformdirs

    monkeypatch.setattr(platformdirs, "user_cache_dir", lambda name, appauthor: str(tmp_path / name))
    assert data_root(None) == tmp_path / "cmr_runner" / "data"
    assert data_root("~/here").is_absolute()


@pytest.mark.parametrize("build", [digits, synthetic])
def test_validation_is_held_out_of_the_training_part_and_the_same_for_everyone(build):
    whole, split = build(), build(validation=100)
    assert len(split.val_y) == 100
    assert len(split.train_y) == len(whole.train_y) - 100
    together = torch.cat([split.train_x, split.val_x]).flatten(1)
    assert sorted(map(tuple, together.tolist())) == sorted(map(tuple, whole.train_x.flatten(1).tolist()))
    torch.manual_seed(5)
    assert torch.equal(build(validation=100).val_x, split.val_x)
    assert torch.equal(split.test_x, whole.test_x)
    assert whole.val_x is None
    with pytest.raises(
        ValueError, match=rf"^validation must be an integer in \[0, {len(whole.train_y) - 1}\], got 99999"
    ):
        build(validation=99999)


def test_tasks_permute_pixels_anew_and_keep_labels():
    base = digits(train_limit=20, test_limit=10, validation=5)
    parts = {field.name: getattr(base, field.name) for field in fields(Dataset)}
    stream = PermutedTasks(**parts, seed=3, epochs_per_task=2)
    assert [stream.task(epoch) for epoch in range(6)] == [0, 0, 0, 1, 1, 2]
    first, again, second = stream.at_epoch(1), stream.at_epoch(2), stream.at_epoch(3)
    assert torch.equal(first.train_x, again.train_x)
    assert not torch.equal(first.train_x, second.train_x)
    assert torch.equal(first.train_y, base.train_y)
    assert dict(second.columns) == {"task": 1}
    # One order for all parts: pixel i of a training image and of a test image come from the same place.
    for part in ("train_x", "val_x", "test_x"):
        was, now = getattr(base, part).flatten(1), getattr(second, part).flatten(1)
        assert torch.equal(was.sort(1).values, now.sort(1).values)
    other = PermutedTasks(**parts, seed=4, epochs_per_task=2)
    assert not torch.equal(other.at_epoch(1).train_x, first.train_x)
    assert torch.equal(stream.to("cpu").at_epoch(3).test_x, second.test_x)
