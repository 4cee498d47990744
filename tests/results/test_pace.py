"""Estimates of time from finished runs."""

from pathlib import Path

import pytest
from synthetic_runs import write_run

from cmr_runner.results.details import seconds
from cmr_runner.results.pace import Pace, duration
from cmr_runner.results.reading import read_run
from cmr_runner.runs.identity import Document, recorded_document


def of(root: Path, **options) -> Document:
    return recorded_document(read_run(write_run(root, **options)).record)


def test_an_epoch_takes_what_it_took_in_runs_that_differ_in_seed_and_length(tmp_path: Path) -> None:
    known = [read_run(write_run(tmp_path / "known", seed=seed, epochs=4)) for seed in (1, 2, 3)]
    pace = Pace([*known, read_run(write_run(tmp_path / "cut", seed=4, epochs=4, status="interrupted", rows=2))])
    each = sorted(seconds(run) / 4 for run in known)
    assert pace.seconds_per_epoch(of(tmp_path / "new", seed=9, epochs=30)) == pytest.approx(each[1])


def test_runs_of_another_penalty_strength_stand_in_and_those_of_another_method_do_not(tmp_path: Path) -> None:
    near, far = (read_run(write_run(tmp_path / str(lr), seed=1, lr=lr)) for lr in (1e-3, 1e-2))
    pace = Pace([near, far])
    assert pace.seconds_per_epoch(of(tmp_path / "same")) == pytest.approx(seconds(near) / 5)
    middle = (seconds(near) + seconds(far)) / 10
    assert pace.seconds_per_epoch(of(tmp_path / "lam", options={"lam": 0.5})) == pytest.approx(middle)
    assert pace.seconds_per_epoch(of(tmp_path / "none", method="none")) is None


@pytest.mark.parametrize(
    ("value", "text"), [(0.44, "0.4 s"), (42.4, "42 s"), (89, "89 s"), (600, "10 min"), (5400, "1.5 h")]
)
def test_durations_are_said_in_the_unit_that_fits(value: float, text: str) -> None:
    assert duration(value) == text
