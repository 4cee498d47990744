"""The loop: what a step does in which order, what its rows say, and that it goes on where it stopped."""

import copy
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn, optim
from torch.nn.functional import cross_entropy

from cmr_runner import regularizers
from cmr_runner.data.batches import epoch_order
from cmr_runner.data.synthetic import synthetic
from cmr_runner.inits import glorot_uniform_
from cmr_runner.models import MLP, ViT
from cmr_runner.runs.columns import METRICS_COLUMNS
from cmr_runner.training.clipping import clip_
from cmr_runner.training.loop import Diverged, Epoch, Interrupted, Trainer
from cmr_runner.training.optimizers import muon, optimizer_of

DATA = synthetic(shape=[1, 8, 8], train=96, test=40)
REGULARIZERS: dict[str, Callable[..., regularizers.Regularizer]] = {
    name: getattr(regularizers, name)
    for name in (
        *["Regularizer", "L2", "SpectralNorm", "CMR", "SpectralNormCMR", "CMRLearned", "SpectralPenalty"],
        *["SoftOrthogonality", "SRIP", "Orthogonal", "AlmostIsometry", "SigmaOne"],
    )
}


def adam(model: nn.Module, **keys: Any) -> optim.Optimizer:
    return optimizer_of(partial(optim.Adam, **keys), model)


def sgd(model: nn.Module, **keys: Any) -> optim.Optimizer:
    return optimizer_of(partial(optim.SGD, **keys), model)


NEED_LAM = {"SpectralPenalty", "SoftOrthogonality", "SRIP", "AlmostIsometry", "SigmaOne"}


def trainer(
    regularizer: str = "CMR",
    *,
    model: str = "mlp",
    optimizer: Callable[..., Any] = adam,
    keys: dict[str, Any] | None = None,
    **settings: Any,
) -> Trainer:
    torch.manual_seed(0)
    network = MLP((1, 8, 8), 10, depth=4, width=16)
    made = network if model == "mlp" else ViT((1, 8, 8), 10, depth=1, width=16, heads=2, dropout=0.3)
    glorot_uniform_(made, torch.Generator().manual_seed(0))
    keys = {"lam": 0.05} | (keys or {}) if regularizer in NEED_LAM else keys or {}
    penalty = REGULARIZERS[regularizer](made, steps_per_epoch=3, seed=0, **keys)
    settings = {"epochs": 2, "batch_size": 32, "seed": 0, **settings}
    return Trainer(model=made, data=DATA, regularizer=penalty, optimizer=optimizer(made), **settings)


def without_time(epoch: Epoch) -> tuple[dict[str, Any], list[dict[str, Any]], list[dict[str, Any]]]:
    metrics = {key: value for key, value in epoch.metrics.items() if "seconds" not in key}
    return metrics, epoch.layers, epoch.spectra


@pytest.mark.parametrize("regularizer", REGULARIZERS)
def test_a_regularizer_adds_to_gradients_and_leaves_the_weights_alone(regularizer: str) -> None:
    made = trainer(regularizer)
    made.model(DATA.train_x).sum().backward()  # spectral_norm takes its power step in the forward
    before = {name: p.detach().clone() for name, p in made.model.named_parameters()}
    made.regularizer.start()
    made.regularizer.add_gradients()
    for name, p in made.model.named_parameters():
        assert torch.equal(p, before[name]), name


@pytest.mark.parametrize("regularizer", REGULARIZERS)
def test_a_resumed_run_equals_an_uninterrupted_one(regularizer: str) -> None:
    keys = {"warmup": 2, "every": 2} if regularizer in {"CMR", "SRIP", "L2"} else {}
    straight = [without_time(epoch) for epoch in trainer(regularizer, keys=keys, epochs=3).run()]
    first = trainer(regularizer, keys=keys, epochs=3)
    epochs = first.run()
    for expected in straight[:2]:
        assert without_time(next(epochs)) == expected
    state = copy.deepcopy(first.state_dict())
    second = trainer(regularizer, keys=keys, epochs=3)
    torch.rand(7)  # the global generator is not part of the state
    second.load_state_dict(state)
    assert [without_time(epoch) for epoch in second.run()] == straight[2:]


def test_dropout_and_muon_resume_exactly_too() -> None:
    straight = [without_time(epoch) for epoch in trainer(model="transformer", optimizer=muon).run()]
    first = trainer(model="transformer", optimizer=muon)
    epochs = first.run()
    next(epochs), next(epochs)
    second = trainer(model="transformer", optimizer=muon)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    assert [without_time(epoch) for epoch in second.run()] == straight[2:]


def test_a_step_caps_then_mixes_then_clips() -> None:
    made = trainer(optimizer=lambda m: sgd(m, lr=1.0, momentum=0.0), keys={"lam": 100.0}, clip_norm=0.5, epochs=1)
    made.data = synthetic(shape=[1, 8, 8], train=32, test=8)  # one step per epoch
    model = copy.deepcopy(made.model)
    before = [p.detach().clone() for p in model.parameters()]
    batch = epoch_order(32, seed=0, epoch=1)
    cross_entropy(model(made.data.train_x[batch]), made.data.train_y[batch]).backward()
    task = torch.cat([p.grad.flatten() for p in model.parameters()]).norm()
    regularizers.CMR(model, lam=100.0).add_gradients()
    total = torch.cat([p.grad.flatten() for p in model.parameters()]).norm()

    *_, last = made.run()

    assert last.metrics["grad_norm_task"] == pytest.approx(float(task), rel=1e-4)
    assert last.metrics["grad_norm_spec"] == pytest.approx(0.5 * float(task), rel=1e-4)  # capped at rho_spec
    assert last.metrics["grad_norm"] == pytest.approx(float(total), rel=1e-4)  # before the clip
    assert (last.metrics["cap_active_fraction"], last.metrics["clip_active_fraction"]) == (1.0, 1.0)
    moved = torch.cat([(p.detach() - b).flatten() for p, b in zip(made.model.parameters(), before, strict=True)]).norm()
    assert float(moved) == pytest.approx(0.5, rel=1e-4)  # lr 1: the step is the clipped gradient


def test_rows_have_the_contracts_columns_and_epoch_zero_is_before_training() -> None:
    epochs = list(trainer("CMRLearned", keys={"K": 6}, diagnostics=True).run())
    assert [epoch.number for epoch in epochs] == [0, 1, 2]
    columns = list(epochs[0].metrics)
    assert tuple(columns[: len(METRICS_COLUMNS)]) == METRICS_COLUMNS
    extra = [f"weight_{k}" for k in (3, 4, 5, 6)]
    assert columns[-len(extra) - 2 :] == [*extra, "jacobian_kappa", "jacobian_kappa_bound"]
    assert all(list(epoch.metrics) == columns for epoch in epochs)
    for name in ("train_loss", "grad_norm", "grad_norm_task", "grad_norm_spec"):
        assert epochs[0].metrics[name] is None
    row = epochs[0].layers[0]
    assert list(row)[:10] == [
        *["epoch", "layer", "rows", "cols", "kappa", "sigma_max", "sigma_min", "stable_rank", "rho_cond", "rho_moment"]
    ]
    assert list(row)[10:] == ["s_3", "s_4", "s_5", "s_6", "grad_h", "grad_h_bound"]
    assert {(r["layer"], r["percentile"]) for r in epochs[0].spectra} == {
        (f"layers.{i}.weight", 2.5 * q) for i in range(4) for q in range(41)
    }


def test_training_learns_and_warmup_ends_where_it_should() -> None:
    *_, last = trainer(epochs=15, keys={"warmup": 2}, optimizer=lambda m: adam(m, lr=1e-2)).run()
    assert last.metrics["test_accuracy"] > 0.5  # of ten classes
    assert last.metrics["lambda_t"] == 0.02
    half = list(trainer(epochs=1, keys={"warmup": 2}).run())[-1]
    assert half.metrics["lambda_t"] == pytest.approx(0.02 * 2 / 6)  # the third step is t = 2 of 6


@pytest.mark.parametrize("regularizer", ["Regularizer", "CMR", "SRIP"])
def test_a_run_that_diverges_keeps_its_rows_and_says_where(regularizer: str) -> None:
    made = trainer(regularizer, epochs=5, clip_norm=math.inf)
    epochs = made.run()
    assert next(epochs).number == 0
    with torch.no_grad():
        made.model.layers[1].weight[0, 0] = torch.nan
    row = next(epochs)
    assert math.isnan(row.metrics["kappa_mean"])
    resumed = trainer(regularizer, epochs=5, clip_norm=math.inf)
    resumed.load_state_dict(copy.deepcopy(made.state_dict()))  # as after a kill before the status was written
    for run in (epochs, resumed.run()):
        with pytest.raises(Diverged, match="epoch 1"):
            next(run)


def test_a_weight_that_is_not_finite_is_named() -> None:
    made = trainer("CMR", epochs=1)
    with torch.no_grad():
        made.model.layers[1].weight[0, 0] = torch.nan
    epochs = made.run()
    next(epochs), next(epochs)
    with pytest.raises(Diverged, match=r"epoch 1, step 1: layers\.1\.weight is not finite$"):
        next(epochs)


def test_weights_that_the_last_step_broke_end_the_run_as_diverged() -> None:
    made = trainer("Regularizer", epochs=1, batch_size=96, optimizer=lambda m: sgd(m, lr=1e38, momentum=0.0))
    epochs = made.run()
    next(epochs)
    row = next(epochs)
    assert math.isfinite(row.metrics["grad_norm"])  # all that the one step saw was finite
    with pytest.raises(Diverged, match="epoch 1: the test loss or a layer is not finite"):
        next(epochs)


def test_a_loss_astronomically_above_a_guess_is_no_result() -> None:
    keys = {"epochs": 1, "batch_size": 48, "clip_norm": math.inf}
    made = trainer("Regularizer", **keys, optimizer=lambda m: sgd(m, lr=1e10, momentum=0.0))
    epochs = made.run()
    *_, row = (next(epochs), next(epochs))
    assert 1e6 * math.log(10) < row.metrics["train_loss"] < math.inf
    with pytest.raises(Diverged, match=r"epoch 1: the training loss, .*, is over 1e\+06 times a guess's"):
        next(epochs)


def test_a_stop_is_obeyed_before_the_next_step() -> None:
    made = trainer()
    seen = []
    with pytest.raises(Interrupted, match="epoch 1 before step 3"):
        for _ in made.run(should_stop=lambda: len(seen) == 2, on_step=seen.append):
            pass
    assert [view.step for view in seen] == [1, 2]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 0}, "^epochs must be an integer >= 1, got 0"),
        ({"batch_size": 0}, "^batch_size must be an integer >= 1, got 0"),
        ({"clip_norm": 0}, "^clip_norm must be > 0, got 0"),
    ],
)
def test_senseless_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        trainer(**settings)


@pytest.mark.parametrize("size", [0.1, 4.9999995, 5.0, 7.0, math.nan])
def test_the_clip_is_torchs_bit_for_bit(size: float) -> None:
    def parameter() -> torch.nn.Parameter:
        made = torch.nn.Parameter(torch.zeros(3, 4))
        made.grad = torch.full((3, 4), size / 12**0.5)
        return made

    own, torchs = parameter(), parameter()
    assert torch.equal(clip_([own], 5.0), torch.nn.utils.clip_grad_norm_([torchs], 5.0)) or math.isnan(size)
    torch.testing.assert_close(own.grad, torchs.grad, rtol=0, atol=0, equal_nan=True)
