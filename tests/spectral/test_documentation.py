"""docs/numerics.md names functions and tests: each name is one that exists."""

import importlib
import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PAGE = (HERE.parents[1] / "docs" / "numerics.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("module", "name"), sorted(set(re.findall(r"`(\w+)\.py:(\w+)`", PAGE))))
def test_notation_table_points_at_code_that_exists(module, name):
    assert callable(getattr(importlib.import_module(f"cmr_runner.spectral.{module}"), name))


@pytest.mark.parametrize("prefix", sorted(set(re.findall(r"`(test_\w+?)(?:_?\*|_?\.\.\.|`)", PAGE))))
def test_named_tests_exist(prefix):
    defined = [
        name for path in HERE.glob("test_*.py") for name in re.findall(r"def (test_\w+)", path.read_text("utf-8"))
    ]
    files = [path.stem for path in HERE.glob("test_*.py")]
    assert any(name.startswith(prefix) for name in [*defined, *files])
