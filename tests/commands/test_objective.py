"""What a job returns to a sweeper that optimises."""

import json
import math
from pathlib import Path

import pytest

from cmr_runner.commands.run import objective
from cmr_runner.runs.outcome import Outcome


@pytest.mark.parametrize(
    ("kind", "final", "expected"),
    [
        ("completed", {"test_accuracy": 0.5, "val_accuracy": 0.25}, 0.25),
        ("resumed", {"test_accuracy": 0.5}, 0.5),
        ("skipped", {"test_accuracy": 0.5}, 0.5),
        ("failed", {"test_accuracy": 0.5}, math.nan),
        ("completed", None, math.nan),
    ],
)
def test_objective_is_validation_accuracy_else_test_accuracy_else_nan(tmp_path: Path, kind, final, expected) -> None:
    (tmp_path / "run.json").write_text(json.dumps({"status": kind, "final": final}))
    assert objective(Outcome(kind, str(tmp_path))) == pytest.approx(expected, nan_ok=True)


def test_a_job_that_never_ran_has_no_objective(tmp_path: Path) -> None:
    assert math.isnan(objective(Outcome("invalid", str(tmp_path / "none"))))
