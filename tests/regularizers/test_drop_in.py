"""CMR in somebody else's loop: it does what the runner does, and leaves the model alone."""

import copy
import re
import warnings
from collections import Counter
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import parametrize

from cmr_runner import CMR, analyze
from cmr_runner.checks import ArgumentError
from cmr_runner.data.batches import epoch_order
from cmr_runner.data.synthetic import synthetic
from cmr_runner.models import MLP
from cmr_runner.regularizers.overlap import TRIAL, Overlap
from cmr_runner.spectral.engines import set_spectral_threads
from cmr_runner.training.loop import Trainer

X = torch.randn(32, 12, generator=torch.Generator().manual_seed(1))
Y = torch.randint(0, 4, (32,), generator=torch.Generator().manual_seed(2))


def network() -> MLP:
    torch.manual_seed(0)
    return MLP((12,), 4, depth=4, width=16)


def gradients(model: nn.Module) -> list[torch.Tensor]:
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


def test_drop_in_gives_step_for_step_the_gradients_of_the_runner() -> None:
    data = synthetic(train=256, test=16)
    keys = {"lam": 0.02, "warmup": 2, "steps_per_epoch": 4, "seed": 0}
    seen: list[list[torch.Tensor]] = []

    def runner_model() -> MLP:
        torch.manual_seed(0)
        return MLP(data.input_shape, 10, depth=4, width=16)

    model = runner_model()
    optimizer = torch.optim.Adam(model.parameters())
    optimizer.register_step_pre_hook(lambda *_: seen.append(gradients(model)))
    trainer = Trainer(
        model=model, data=data, regularizer=CMR(model, **keys), optimizer=optimizer, seed=0, epochs=2, clip_norm=5.0
    )
    for _ in trainer.run():
        pass

    own = runner_model()
    cmr, optimizer = CMR(own, **keys), torch.optim.Adam(own.parameters())
    expected = iter(seen)
    for epoch in (1, 2):
        for batch in epoch_order(256, seed=0, epoch=epoch).split(64):
            optimizer.zero_grad()
            cross_entropy(own(data.train_x[batch]), data.train_y[batch]).backward()
            cmr.add_gradients()
            torch.nn.utils.clip_grad_norm_(own.parameters(), 5.0)
            for ours, theirs in zip(gradients(own), next(expected), strict=True):
                assert torch.equal(ours, theirs)
            optimizer.step()
    assert len(seen) == 8


def test_model_is_left_as_it_was() -> None:
    model = network()
    keys, hooks = list(model.state_dict()), len(model._forward_hooks) + len(model._backward_hooks)
    weights = copy.deepcopy(model.state_dict())
    cmr = CMR(model)
    cross_entropy(model(X), Y).backward()
    cmr.add_gradients()
    assert list(model.state_dict()) == keys
    assert len(model._forward_hooks) + len(model._backward_hooks) == hooks == 0
    assert all(torch.equal(value, weights[key]) for key, value in model.state_dict().items())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def with_a_task_gradient(model: nn.Module, size: float) -> None:
    """At the biases alone, so that what is added to the weights can be read off."""
    for p in model.parameters():
        p.grad = torch.full_like(p, size if p.ndim == 1 else 0.0)


@pytest.mark.parametrize("turns", [1, 2, 3])
def test_over_a_round_of_turns_each_layer_gets_what_it_would_get_at_once(turns: int) -> None:
    model = network()
    at_once = CMR(model, engine="exact")
    by_turns = CMR(model, engine={"name": "staggered", "turns": turns, "refresh": 1})
    weights = [layer.weight.parameters[0] for layer in by_turns.layers]

    def added(cmr: CMR) -> list[torch.Tensor]:
        with_a_task_gradient(model, 1e4)  # far larger than the penalty's: the task is in charge
        cmr.add_gradients()
        return [w.grad.clone() for w in weights if w.grad is not None]

    truth = added(at_once)
    for _ in range(turns):  # until a round may begin a step takes all layers
        for found, whole in zip(added(by_turns), truth, strict=True):
            torch.testing.assert_close(found, whole, rtol=1e-3, atol=1e-6)
    rounds = [added(by_turns) for _ in range(turns)]
    for i, whole in enumerate(truth):
        parts = [step[i] for step in rounds]
        assert sum(bool(part.any()) for part in parts) == 1  # each layer in one step of the round
        torch.testing.assert_close(torch.stack(parts).sum(0), turns * whole, rtol=1e-3, atol=1e-6)
    assert by_turns.last is not None
    assert len(by_turns.last.kappa) == len(weights)  # of all layers, as of their last turn


def test_where_the_task_is_not_in_charge_every_layer_gets_its_part_at_every_step() -> None:
    model = network()
    cmr = CMR(model, lam=10.0, rho_spec=0.25)
    for _ in range(3):
        with_a_task_gradient(model, 0.01)
        task = torch.cat([g.flatten() for g in gradients(model)]).norm()
        cmr.add_gradients()
        added = [g for g in gradients(model) if g.ndim == 2]
        assert all(g.any() for g in added)
        torch.testing.assert_close(torch.cat([g.flatten() for g in added]).norm(), 0.25 * task, rtol=1e-3, atol=1e-6)


def test_gradient_accumulation_caps_against_the_accumulated_gradient() -> None:
    whole, halves = network(), network()
    cross_entropy(whole(X), Y).backward()
    for part in (slice(0, 16), slice(16, 32)):
        (cross_entropy(halves(X[part]), Y[part]) / 2).backward()
    for model in (whole, halves):
        CMR(model, lam=10.0).add_gradients()
    for one, other in zip(gradients(whole), gradients(halves), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_last_tells_what_was_added() -> None:
    model = network()
    cross_entropy(model(X), Y).backward()
    before = gradients(model)
    cmr = CMR(model, lam=10.0, rho_spec=0.25)
    cmr.add_gradients()
    last = cmr.last
    assert last is not None
    added = torch.cat([(g - b).flatten() for g, b in zip(gradients(model), before, strict=True)]).norm()
    task = torch.cat([b.flatten() for b in before]).norm()
    torch.testing.assert_close(last.norm_task, task)
    torch.testing.assert_close(last.norm_spec, added, rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(added, 0.25 * task, rtol=1e-3, atol=1e-6)
    assert float(last.cap) < 1
    assert last.lambda_t == 10.0
    assert last.kappa.tolist() == pytest.approx(analyze(model)["kappa"].tolist(), rel=1e-2)


def test_autocast_does_not_change_the_spectra() -> None:
    plain, autocast = network(), network()
    CMR(plain, mixing="uncapped", engine="exact").add_gradients()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        CMR(autocast, mixing="uncapped", engine="exact").add_gradients()
    for one, other in zip(gradients(plain), gradients(autocast), strict=True):
        assert torch.equal(one, other)


class Turned(nn.Module):
    """A parametrisation by a product, which autocast would take in half precision."""

    def forward(self, W: torch.Tensor) -> torch.Tensor:
        return torch.eye(len(W)).roll(1, 0) @ W


@pytest.mark.parametrize("every", [1, 2])
def test_autocast_does_not_reach_a_parametrised_weight(every: int) -> None:
    def gradient(*, autocast: bool) -> torch.Tensor:
        torch.manual_seed(0)
        model = nn.Linear(40, 40, bias=False)
        parametrize.register_parametrization(model, "weight", Turned())
        cmr = CMR(model, mixing="uncapped", every=every)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            for _ in range(2):
                cmr.add_gradients()
        return gradients(model)[0]

    assert torch.equal(gradient(autocast=True), gradient(autocast=False))


def test_grad_scaler_unscaled_first_gives_the_unscaled_gradients() -> None:
    plain, scaled = network(), network()
    cross_entropy(plain(X), Y).backward()
    CMR(plain, lam=10.0).add_gradients()

    optimizer = torch.optim.SGD(scaled.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    scaler.scale(cross_entropy(scaled(X), Y)).backward()
    scaler.unscale_(optimizer)  # the cap compares norms, so the task's gradient must have its true size
    CMR(scaled, lam=10.0).add_gradients()
    for one, other in zip(gradients(plain), gradients(scaled), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("engine", ["exact", "auto"])
def test_restored_state_continues_bit_for_bit(every: int, engine: str) -> None:
    def train(model: nn.Module, cmr: CMR, steps: int) -> None:
        for _ in range(steps):
            model.zero_grad()
            cross_entropy(model(X), Y).backward()
            cmr.add_gradients()
            with torch.no_grad():
                for p in model.parameters():
                    p -= 0.1 * p.grad

    straight = network()
    train(straight, CMR(straight, warmup=6, every=every, engine=engine), 7)

    first = network()
    cmr = CMR(first, warmup=6, every=every, engine=engine)
    train(first, cmr, 4)
    second = network()
    second.load_state_dict(first.state_dict())
    resumed = CMR(second, warmup=6, every=every, engine=engine)
    resumed.load_state_dict(copy.deepcopy(cmr.state_dict()))
    train(second, resumed, 3)
    assert all(torch.equal(a, b) for a, b in zip(straight.parameters(), second.parameters(), strict=True))
    assert resumed.step == 7


def test_half_precision_weights_get_finite_gradients_of_their_own_dtype() -> None:
    model = nn.Linear(8, 8).half()
    with torch.no_grad():
        model.weight.copy_(torch.ones(8, 8))  # σ_min = 0: slopes near 1/ε
    CMR(model, mixing="uncapped", engine="exact").add_gradients()
    assert model.weight.grad.dtype == torch.float16
    assert torch.isfinite(model.weight.grad).all()


def test_half_precision_without_a_task_gradient_gets_none() -> None:
    model = nn.Linear(8, 8).half()
    model.weight.grad = torch.zeros_like(model.weight)
    CMR(model, warmup_steps=10).add_gradients()  # λ = 0 at first: in float16 the cap would be 0/δ = 0/0
    assert not model.weight.grad.any()


def test_a_state_follows_the_weights_to_their_device() -> None:
    cmr = CMR(network(), every=3)
    cmr.add_gradients()
    elsewhere = CMR(network().to("meta"), every=3)
    elsewhere.load_state_dict(cmr.state_dict())
    tensors = [v for _, penalty in elsewhere._found for v in vars(penalty).values() if isinstance(v, torch.Tensor)]
    assert {tensor.device.type for tensor in tensors} == {"meta"}


def test_large_layers_are_read_where_they_lie_and_small_ones_of_a_shape_as_one_batch() -> None:
    torch.manual_seed(0)
    large = [nn.Linear(1024, 512), nn.Linear(1024, 512)]
    model = nn.ModuleList([*large, *(nn.Linear(512, 64) for _ in range(4))])
    cmr = CMR(model, alpha2=0.0)
    seen: dict[tuple[int, ...], list[int]] = {}
    compute = cmr.engine.penalty

    def watched(W: torch.Tensor, *args: object, **options: object) -> object:
        seen.setdefault(tuple(W.shape), []).append(W.data_ptr())
        return compute(W, *args, **options)  # type: ignore[arg-type]

    cmr.engine.penalty = watched  # type: ignore[assignment,method-assign]
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    cmr.add_gradients()
    assert sorted(seen[1, 512, 1024]) == sorted(layer.weight.data_ptr() for layer in large)
    assert len(seen[4, 64, 512]) == 1


def test_a_second_start_in_a_step_begins_nothing() -> None:
    cmr = CMR(network())
    evaluated = []
    penalty = cmr.engine.penalty
    cmr.engine.penalty = lambda *a, **k: (evaluated.append(k["group"]), penalty(*a, **k))[1]
    set_spectral_threads(2)
    try:
        cmr.start()
        cmr.start()
        cmr.add_gradients()
    finally:
        set_spectral_threads(1)
    assert sorted(evaluated) == sorted({f"{m}x{n}" for _, (m, n), _ in cmr.plan})


def test_step_times_do_not_pile_up_where_start_is_never_called() -> None:
    overlap = Overlap()
    for _ in range(3 * TRIAL):
        overlap.step_ended()
    assert len(overlap._times[False]) == TRIAL


@pytest.mark.parametrize("turns", [1, 2, 4, 6, 8])
def test_a_trial_of_an_early_start_sees_every_turn_both_ways(turns: int) -> None:
    """The turns of a round differ in cost: seen unequally often, they would decide."""
    overlap, seen = Overlap(), Counter()
    overlap.step_ended()
    for step in range(2 * TRIAL):
        seen[overlap.worth_it(), step % turns] += 1
        overlap.step_ended()
    assert set(seen.values()) == {TRIAL // turns}


def test_a_start_that_is_called_late_is_tried_too() -> None:
    overlap = Overlap()
    for _ in range(3 * TRIAL):
        overlap.step_ended()
    assert overlap.worth_it()


@pytest.mark.parametrize(("gain", "chosen"), [(-0.2, False), (0.0, False), (0.02, False), (0.1, True)])
def test_steps_begin_early_only_where_that_gains_more_than_noise(
    gain: float, chosen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr("cmr_runner.regularizers.overlap.time.perf_counter", lambda: now)
    overlap = Overlap()
    for _ in range(2 * TRIAL + 1):
        now += 1 - gain if overlap.worth_it() else 1
        overlap.step_ended()
    assert [overlap.worth_it() for _ in range(10)] == [chosen] * 10


def warned(act: Callable[[], object]) -> list[str]:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        act()
    assert all(warning.filename == __file__ for warning in said)  # it points at the caller's line
    return [str(warning.message).partition(":")[0] for warning in said]


def test_a_call_before_backward_and_a_second_one_in_a_step_are_said_once() -> None:
    model = network()
    cmr = CMR(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    assert warned(cmr.add_gradients) == ["add_gradients() was called before any backward"]
    for set_to_none in (True, False):  # an honest loop, whichever way it clears its gradients
        for _ in range(3):
            optimizer.zero_grad(set_to_none=set_to_none)
            cross_entropy(model(X), Y).backward()
            assert warned(cmr.add_gradients) == []
            optimizer.step()
    assert warned(cmr.add_gradients) == ["add_gradients() was called twice without a backward between"]
    assert warned(cmr.add_gradients) == []


def test_a_layer_that_is_singular_at_the_start_is_named() -> None:
    model = network()
    with torch.no_grad():
        model.layers[2].weight.zero_()
    cross_entropy(model(X), Y).backward()
    cmr = CMR(model, engine="exact")
    assert warned(cmr.add_gradients) == ["κ is infinite at the start in layers.2.weight"]


def test_reduced_precision_of_the_process_does_not_reach_the_spectra_and_is_put_back() -> None:
    plain, reduced = network(), network()
    for model in (plain, reduced):
        cross_entropy(model(X), Y).backward()
    CMR(plain).add_gradients()
    seen = []
    cmr = CMR(reduced)
    penalty = cmr.engine.penalty
    cmr.engine.penalty = lambda *a, **k: (seen.append(torch.backends.cuda.matmul.fp32_precision), penalty(*a, **k))[1]
    torch.set_float32_matmul_precision("medium")
    try:
        cmr.add_gradients()
        assert torch.get_float32_matmul_precision() == "medium"
        assert torch.backends.cuda.matmul.fp32_precision == "tf32"
    finally:
        torch.set_float32_matmul_precision("highest")
    assert set(seen) == {"ieee"}
    assert all(torch.equal(a, b) for a, b in zip(gradients(plain), gradients(reduced), strict=True))


def test_what_it_prints_are_numbers_and_a_table() -> None:
    model = network()
    cmr = CMR(model, lam=0.5)
    assert repr(cmr) == "CMR(4 layers, lam=0.5, engine=auto)"
    model.layers[0].requires_grad_(False)
    assert repr(cmr) == "CMR(4 layers, 1 of them frozen, lam=0.5, engine=auto)"
    assert str(cmr.plan).splitlines()[0].split() == ["layers.0.weight", "16", "×", "12", "cmr", "(staggered,", "all)"]
    cross_entropy(model(X), Y).backward()
    cmr.add_gradients()
    said = str(cmr.last)
    assert re.fullmatch(r"StepNumbers\((\w+=[-+.e0-9]+(, )?)+\)", said), said
    assert "lambda_t=0.5" in said
    assert "kappa_mean=" in said


def test_warm_up_can_be_given_in_steps() -> None:
    model = network()
    cmr = CMR(model, lam=1.0, warmup_steps=4, steps_per_epoch=10)
    assert [cmr.mixer.lambda_at(step) for step in (0, 1, 4, 5)] == [0.0, 0.25, 1.0, 1.0]
    with pytest.raises(ArgumentError, match=r"^warmup_steps must be given without warmup"):
        CMR(model, warmup=2, warmup_steps=4)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"lam": -1}, r"^lam must be >= 0, got -1"),
        ({"lam": float("nan")}, r"^lam must be a finite number >= 0, got nan"),
        ({"lam": "strong"}, r"^lam must be a number >= 0, got 'strong'"),
        ({"warmup": "2 epochs"}, r"^warmup must be a number >= 0, got '2 epochs'"),
        ({"beta": None}, r"^beta must be a number, got None"),
        ({"rho_spec": 0}, r"^rho_spec must be in \(0, 1\], got 0"),
        ({"rho_spec": 1.5}, r"^rho_spec must be in \(0, 1\], got 1.5"),
        ({"K": 2}, r"^K must be an integer >= 3, got 2"),
        ({"eps": 0}, r"^eps must be in \(0, 1e\+30\], got 0"),
        ({"gram": "rows"}, r"^gram must be one of short_side, columns, got 'rows'"),
        ({"mixing": "none"}, r"^mixing must be one of penalty_cap, algorithm1, uncapped, got 'none'"),
        ({"warmup": -1}, r"^warmup must be >= 0, got -1"),
        ({"every": 0}, r"^every must be an integer >= 1, got 0"),
        ({"engine": "quick"}, r"^engine must be one of .*, got 'quick'"),
    ],
)
def test_a_value_out_of_range_is_refused_by_its_argument(keys: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CMR(network(), **keys)  # type: ignore[arg-type]


def test_analyze_gives_one_row_per_layer_and_nan_where_it_is_not_finite() -> None:
    model = network()
    with torch.no_grad():
        model.layers[1].weight.copy_(torch.diag(torch.linspace(4, 1, 16)))
        model.layers[2].weight.fill_(torch.nan)
    table = analyze(model, K=4)
    assert list(table.columns) == [
        *["layer", "rows", "cols", "kappa", "sigma_max", "sigma_min", "stable_rank", "rho_cond", "rho_moment"],
        *["s_3", "s_4"],
    ]
    assert table["layer"].tolist() == [f"layers.{i}.weight" for i in range(4)]
    assert table["kappa"][1] == pytest.approx(4.0)
    assert table.loc[2, "kappa":].isna().all()
