"""Differences to no regulariser are taken seed by seed, within one setting."""

from pathlib import Path

import pytest
from synthetic_runs import write_run

from cmr_runner.results.differences import differences, paired_differences
from cmr_runner.results.grouping import settings
from cmr_runner.results.quantities import ACCURACY
from cmr_runner.results.reading import find_runs


def test_a_difference_pairs_the_seeds_that_both_have(tmp_path: Path) -> None:
    for seed in (0, 1, 2):
        write_run(tmp_path, method="none", seed=seed)
        write_run(tmp_path, method="cmr", seed=seed + 1)
    (setting,) = settings(find_runs([tmp_path])[0])
    (none,), (cmr,) = setting.of("none"), setting.of("cmr")
    finals = {(run.method, str(run.seed)): 100 * run.metrics["test_accuracy"][-1] for run in setting.runs}
    expected = [finals["cmr", seed] - finals["none", seed] for seed in ("1", "2")]
    assert paired_differences(cmr, none, ACCURACY) == pytest.approx(expected)


def test_a_method_is_compared_within_its_own_setting_and_has_an_interval_from_three_seeds_on(tmp_path: Path) -> None:
    for seed in (0, 1, 2):
        write_run(tmp_path, method="none", seed=seed, target=(0.5, 10.0))
        write_run(tmp_path, method="cmr", seed=seed, target=(0.6, 2.0))
    for seed in (0, 1):
        write_run(tmp_path, method="none", seed=seed, lr=0.1, target=(0.2, 10.0))
        write_run(tmp_path, method="cmr", seed=seed, lr=0.1, target=(0.1, 2.0))
    found = dict(differences(find_runs([tmp_path])[0]))
    assert found.keys() == {"kappa_stress, lr=0.001", "kappa_stress, lr=0.1"}
    (better,), (worse,) = found["kappa_stress, lr=0.001"], found["kappa_stress, lr=0.1"]
    assert (better[0], better[2][0], better[4]) == ("CMR", "+", "3")
    assert " to " in better[3]
    assert (worse[2][0], worse[3:]) == ("-", ["–", "2"])
