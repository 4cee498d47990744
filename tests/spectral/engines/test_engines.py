"""What holds for every engine: names, choice by size, resuming, and independence of threads."""

import copy
import io
from functools import partial

import pytest
import torch

from cmr_runner.spectral import PenaltySpec
from cmr_runner.spectral.engines import ENGINES, ExactEngine, build_engine, set_spectral_threads, shared_workers
from cmr_runner.spectral.engines.chunks import chunk_bounds
from cmr_runner.spectral.engines.exact import gram_svd
from cmr_runner.spectral.penalty import exact_penalty

from .layers import layers, relative, walk

SPEC = PenaltySpec()


@pytest.fixture(autouse=True)
def _threads_as_before():
    yield
    set_spectral_threads(1)


def path(engine, batches, first=0):
    """The engine's results along a walk, as one list of tensors."""
    results = []
    for step, W in enumerate(batches, start=first):
        out = engine.penalty(W, SPEC, group="g", step=step)
        results += [out.gradient, out.value, out.moments, out.sigma_min]
    return results


def same_bits(a, b):
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def test_an_unknown_engine_is_named_with_those_there_are():
    with pytest.raises(ValueError, match="engine must be one of exact, fast, stochastic, staggered, auto, got 'quick'"):
        build_engine("quick", seed=0)


@pytest.mark.parametrize(("engine", "options"), [("fast", {"steps": 1}), ("stochastic", {"probes": 0})])
def test_options_out_of_range_are_refused(engine, options):
    with pytest.raises(ValueError, match=f"^engine.{next(iter(options))} must be an integer >= "):
        build_engine({"name": engine, **options}, seed=0)


def test_an_option_of_another_engine_is_refused_and_none_stands_for_the_default():
    with pytest.raises(ValueError, match=r"^engine\.probes is no option of fast: it takes steps"):
        build_engine({"name": "fast", "probes": 4})
    assert build_engine({"name": "fast", "steps": None, "probes": None}).steps == build_engine("fast").steps
    assert build_engine({"name": "fast", "steps": 32}).steps == 32


def test_an_engine_of_ones_own_is_taken_as_it_is():
    engine = ExactEngine()
    assert build_engine(engine, seed=4) is engine


def test_auto_serves_each_shape_by_the_engine_it_names():
    auto = build_engine("auto", seed=3)
    named = {shape: auto.name_for(shape) for shape in [(10, 256), (256, 256), (256, 784), (1024, 1024), (512, 9216)]}
    ways = ["all", "products", "products", "probes", "probes"]
    assert list(named.values()) == [f"staggered, {way}" for way in ways]
    batches = list(walk(layers(2, 48, 48, kappa=3), 3))
    assert same_bits(path(auto, batches), path(build_engine("staggered", seed=3), batches))


@pytest.mark.parametrize("name", ENGINES)
def test_a_resumed_run_continues_bit_for_bit(name):
    batches = list(walk(layers(3, 48, 64, kappa=3), 6))
    whole = path(build_engine(name, seed=5), batches)
    engine = build_engine(name, seed=5)
    path(engine, batches[:3])
    file = io.BytesIO()
    torch.save(engine.state_dict(), file)
    file.seek(0)
    resumed = build_engine(name, seed=6)  # the seed is in the state
    resumed.load_state_dict(torch.load(file, weights_only=True))
    assert same_bits(path(resumed, batches[3:], first=3), whole[3 * 4 :])


def test_a_state_kept_before_a_step_is_not_moved_by_it():
    batches = list(walk(layers(3, 48, 64, kappa=3), 3))
    engine = build_engine("fast", seed=5)
    path(engine, batches[:2])
    state = engine.state_dict()
    kept = state["vectors"]["g"].clone()
    path(engine, batches[2:], first=2)
    assert torch.equal(state["vectors"]["g"], kept)


def test_a_state_that_was_loaded_is_not_moved_by_a_step():
    batches = list(walk(layers(3, 48, 64, kappa=3), 3))
    engine, other = build_engine("staggered", seed=5), build_engine("staggered", seed=5)
    path(engine, batches[:2])
    state = engine.state_dict()
    kept = copy.deepcopy(state)
    other.load_state_dict(state)
    path(other, batches[2:], first=2)
    held, before = state["groups"]["g"], kept["groups"]["g"]
    assert same_bits(
        [v for v in held.values() if torch.is_tensor(v)], [v for v in before.values() if torch.is_tensor(v)]
    )


@pytest.fixture
def failing(monkeypatch):
    """failing(name, fails): torch.linalg's decomposition does not converge where fails(A) holds."""

    def fail(name, fails):
        real = getattr(torch.linalg, name)

        def decompose(A, *args, **kwargs):
            if fails(A):
                raise torch.linalg.LinAlgError("failed to converge")
            return real(A, *args, **kwargs)

        monkeypatch.setattr(torch.linalg, name, decompose)

    return fail


@pytest.mark.parametrize(
    ("name", "shape"),
    [("fast", (48, 48)), ("stochastic", (48, 48)), ("staggered", (48, 48)), ("staggered", (10, 60))],
)
def test_edges_that_do_not_converge_are_left_to_exact_which_skips_what_fails_there_too(
    name, shape, failing, monkeypatch
):
    batches = list(walk(layers(3, *shape, kappa=3), 3))
    engine = build_engine(name)
    engine.penalty(batches[0], SPEC, group="g", step=0)
    truth, marked = exact_penalty(batches[1], SPEC), batches[1][1, 0, 0]
    failing("eigh", lambda A: True)
    failing("svd", lambda A: bool((A[..., 0, 0] == marked).any()))
    out = engine.penalty(batches[1], SPEC, group="g", step=1)
    assert (out.fallbacks, out.skipped) == (3, 1)
    assert out.value[1] == 0
    assert not out.gradient[1].any()
    torch.testing.assert_close(out.gradient[[0, 2]], truth.gradient[[0, 2]])
    monkeypatch.undo()
    assert torch.isfinite(engine.penalty(batches[2], SPEC, group="g", step=2).gradient).all()


def test_a_layer_that_exact_skips_in_staggered_is_counted_and_keeps_its_moments(failing):
    W = layers(3, 64, 64, kappa=1)  # so narrow a spectrum has its moments from `exact`
    engine = build_engine({"name": "staggered", "refresh": 1})
    before = engine.penalty(W, SPEC, group="g", step=0)
    failing("svd", lambda A: bool((A[..., 0, 0] == W[1, 0, 0]).any()))
    after = engine.penalty(W, SPEC, group="g", step=1)
    assert (before.skipped, after.skipped) == (0, 1)
    assert torch.equal(after.moments[1], before.moments[1])
    assert torch.equal(after.rho_moment[1], before.rho_moment[1])
    assert not after.dense[1].any()
    first = build_engine("staggered").penalty(W, SPEC, group="g", step=0)
    assert first.moments[1].isnan().all()
    assert torch.isfinite(first.value).all()


@pytest.mark.parametrize("name", ENGINES)
def test_threads_and_overlap_change_no_bit(name):
    """One thread, helpers, torch's own count at two, started early or not: the same numbers."""
    batches = list(walk(layers(9, 160, 160, kappa=3), 3))
    results = []
    before = torch.get_num_threads()
    try:
        for spectral, intra_op, early in [(1, 1, False), (2, 1, False), (2, 2, False), (3, 2, True), (2, 1, True)]:
            set_spectral_threads(spectral)
            torch.set_num_threads(intra_op)
            engine, found = build_engine(name, seed=1), []
            for step, W in enumerate(batches):
                task = shared_workers().submit(partial(engine.penalty, W, SPEC, group="g", step=step))
                if early:  # something for the calling thread to do meanwhile
                    torch.randn(300, 300) @ torch.randn(300, 300)
                out = task.result()
                found += [out.gradient, out.value, out.moments]
            results.append(found)
    finally:
        torch.set_num_threads(before)
    assert all(same_bits(results[0], other) for other in results[1:])


@pytest.mark.parametrize("name", ["fast", "stochastic"])
def test_what_is_drawn_depends_on_seed_group_and_step(name):
    W = layers(2, 48, 48, kappa=3)

    def second(seed, group, step):
        engine = build_engine(name, seed=seed)
        engine.penalty(W, SPEC, group=group, step=0)
        return engine.penalty(W, SPEC, group=group, step=step).gradient

    base = second(0, "a", 1)
    assert torch.equal(base, second(0, "a", 1))
    for other in (second(1, "a", 1), second(0, "b", 1), second(0, "a", 2)):
        assert not torch.equal(base, other)


def test_a_group_whose_shape_changed_starts_afresh():
    engine = build_engine("fast", seed=0)
    engine.penalty(layers(2, 48, 48, kappa=3), SPEC, group="g", step=0)
    W = layers(3, 40, 40, kappa=3)
    torch.testing.assert_close(
        engine.penalty(W, SPEC, group="g", step=1).gradient, ExactEngine().penalty(W, SPEC).gradient
    )


@pytest.mark.parametrize("kappa", [1.1, 5, 20])
@pytest.mark.parametrize("shape", [(64, 64), (90, 64), (64, 90)])
def test_exact_by_eigh_of_the_gram_matrix_agrees_with_the_svd(shape, kappa):
    W = layers(3, *shape, kappa=kappa)
    U, sigma, Vh = gram_svd(W)
    torch.testing.assert_close((U * sigma.unsqueeze(-2)) @ Vh, W, atol=1e-5, rtol=0)
    torch.testing.assert_close(sigma, torch.linalg.svdvals(W.double()).float(), rtol=3e-5, atol=0)
    assert relative(ExactEngine().penalty(W, SPEC).gradient, exact_penalty(W.double(), SPEC).gradient) < 1e-3


def test_exact_turns_to_the_svd_where_the_gram_matrix_loses_the_low_edge():
    W = layers(2, 64, 64, kappa=1e3)
    assert gram_svd(W) is None
    truth = torch.linalg.svdvals(W.double())[:, -1].float()
    torch.testing.assert_close(ExactEngine().penalty(W, SPEC).sigma_min, truth, rtol=1e-3, atol=0)


def test_pieces_cover_the_batch_and_depend_on_its_shape_alone():
    for B in (1, 2, 13, 40):
        bounds = chunk_bounds(torch.empty(B, 64, 64), entries=5 * 64 * 64)
        assert [i for start, stop in bounds for i in range(start, stop)] == list(range(B))
        assert max(stop - start for start, stop in bounds) <= 5
    assert chunk_bounds(torch.empty(3, 500, 500), entries=1) == [(0, 1), (1, 2), (2, 3)]
