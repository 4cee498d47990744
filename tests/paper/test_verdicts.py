"""The rule by which the report says whether a figure of the paper is reproduced."""

import json

import pytest
from synthetic_runs import write_baselines, write_kappa_stress, write_run

from cmr_runner.paper.reproduction import reproduction
from cmr_runner.paper.verdicts import (
    CLOSE,
    HOLDS,
    NOT_REPRODUCED,
    NOT_RUN,
    SAME_DIRECTION,
    WITHIN,
    shape_verdict,
    value_verdict,
)
from cmr_runner.results.reading import find_runs


@pytest.mark.parametrize(
    ("paper", "measured", "log", "agrees", "kind"),
    [
        (86.0, [70.0, 86.0, 99.0], False, False, WITHIN),  # the interval holds it
        (86.0, [82.0], False, False, CLOSE),  # within five points, one seed
        (86.0, [80.9], False, True, SAME_DIRECTION),
        (86.0, [80.9], False, False, NOT_REPRODUCED),
        (86.0, [80.9], False, None, NOT_REPRODUCED),
        (3.9e3, [1.96e3], True, False, CLOSE),  # within a factor of two
        (4.2, [2.2, 2.35, 2.5], True, True, CLOSE),  # outside the interval of three seeds
        (3.9e3, [1.9e3], True, True, SAME_DIRECTION),
        (3.9e3, [7.9e3], True, False, NOT_REPRODUCED),
        (3.9e3, [1e3, 1e4, 1e5], True, False, WITHIN),  # the interval of the logarithms holds it
        (3.9e3, [], True, True, NOT_RUN),
        (3.9e3, [float("nan")], True, True, NOT_RUN),
    ],
)
def test_value_verdict_follows_the_stated_rule(paper, measured, log, agrees, kind):
    assert value_verdict(paper, measured, log=log, agrees=agrees).kind == kind


def test_what_is_only_close_says_how_close():
    assert value_verdict(4.2, [2.2, 2.35, 2.5], log=True, agrees=True).text == "close (within a factor of 2)"
    assert value_verdict(86.0, [82.0], log=False, agrees=True).text == "close (within ±5 points)"
    assert value_verdict(86.0, [70.0, 86.0, 99.0], log=False, agrees=True).text == "within"


def test_the_interval_of_two_seeds_does_not_count():
    # It is 500 points wide and would hold any accuracy.
    assert value_verdict(50.0, [60.0, 100.0], log=False, agrees=False).kind == NOT_REPRODUCED


def test_shape_verdict_prefers_the_claim_over_its_direction():
    assert shape_verdict(True, True).kind == HOLDS
    assert shape_verdict(False, True).kind == SAME_DIRECTION
    assert shape_verdict(False, False).kind == NOT_REPRODUCED


def rows_of(root):
    runs, _ = find_runs([root])
    first, second = reproduction(runs)
    return first, second


def test_without_runs_there_is_no_verdict_but_the_command_that_makes_them(tmp_path):
    for comparison, experiment in zip(rows_of(tmp_path), ("kappa_stress", "standard_baselines"), strict=True):
        assert comparison.rows == []
        assert comparison.source == ""
        assert comparison.command == f"cmr-run -m experiment={experiment}"


def test_runs_that_behave_like_the_paper_are_found_to(tmp_path):
    write_kappa_stress(tmp_path, seeds=3, layers=1)
    write_baselines(tmp_path, seeds=3, layers=1)
    first, second = rows_of(tmp_path)
    assert {row.verdict.kind for row in first.rows} <= {WITHIN, CLOSE}
    kinds = {row.claim.partition(" (")[0]: row.verdict.kind for row in second.rows}
    assert kinds["accuracies are comparable"] == HOLDS
    assert kinds["vanilla's median κ(G) rises sharply after epoch 4"] == HOLDS
    assert kinds["CMR's 90th percentile κ(G) stays low"] == HOLDS


def test_runs_that_behave_otherwise_are_not_reproductions(tmp_path):
    for seed in range(3):
        write_run(tmp_path, method="none", seed=seed, layers=1, target=(0.95, 2.0))
        write_run(tmp_path, method="cmr", seed=seed, layers=1, target=(0.30, 5e4))
        for method, target in (("none", (0.95, 600)), ("cmr", (0.6, 1e6))):
            options = {"seed": seed, "init": "glorot_uniform", "epochs": 20, "layers": 1, "target": target}
            write_run(tmp_path, "standard_baselines", method, **options)
    first, second = rows_of(tmp_path)
    by_claim = {row.claim: row.verdict.kind for row in first.rows}
    assert by_claim["test accuracy (%), CMR"] == NOT_REPRODUCED
    assert by_claim["mean κ(W), vanilla"] == NOT_REPRODUCED
    assert [row.verdict.kind for row in second.rows[:2]] == [NOT_REPRODUCED, NOT_REPRODUCED]
    assert second.rows[4].verdict.kind == NOT_REPRODUCED  # low


def test_only_runs_in_the_papers_setting_get_a_verdict(tmp_path):
    write_kappa_stress(tmp_path, seeds=4, epochs=2, layers=1)
    short, _ = rows_of(tmp_path)
    assert short.rows == []
    write_kappa_stress(tmp_path, seeds=1, epochs=5, layers=1)
    whole, _ = rows_of(tmp_path)
    assert whole.rows[0].n == 1


@pytest.mark.parametrize(("group", "key", "value"), [("model", "depth", 3), ("optimizer", "lr", 0.1)])
def test_runs_of_another_network_or_learning_rate_get_no_verdict(tmp_path, group, key, value):
    for method in ("none", "cmr"):
        folder = write_run(tmp_path, method=method, layers=1)
        record = json.loads((folder / "run.json").read_text())
        record["config"][group][key] = value
        (folder / "run.json").write_text(json.dumps(record))
    first, _ = rows_of(tmp_path)
    assert first.rows == []


def test_a_cmr_of_another_strength_is_not_the_papers(tmp_path):
    write_run(tmp_path, method="none", layers=1)
    write_run(tmp_path, method="cmr", layers=1, options={"lam": 0.5})
    first, _ = rows_of(tmp_path)
    assert {row.claim.rpartition(", ")[2]: row.verdict.kind for row in first.rows}["CMR"] == NOT_RUN


def test_diverged_runs_do_not_enter_the_measured_value(tmp_path):
    write_kappa_stress(tmp_path, seeds=3, layers=1)
    write_run(tmp_path, method="cmr", seed=7, status="diverged", rows=3, layers=1)
    first, _ = rows_of(tmp_path)
    assert [row.n for row in first.rows] == [3] * 6
