"""What holds for every engine: names, choice by size, resuming, and independence of threads."""

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
    resumed = build_engine(name, seed=5)
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
