"""The pages that quote results quote those of the committed files."""

import re
from pathlib import Path

import pytest

from cmr_runner.commands.report import main as report

ROOT = Path(__file__).parents[1]
TIMES = r"(?: × 10[⁰¹²³⁴-⁹]+)?"
# A mean with its deviation, an interval, or the accuracy of one run.
QUOTED = re.compile(rf"\(?[\d.]+ ± [\d.]+\)?{TIMES}|[\d.]+{TIMES} to [\d.]+{TIMES}|\b\d\d\.\d\d\b")


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What cmr-report says of the committed runs."""
    out = tmp_path_factory.mktemp("report")
    assert report([str(ROOT / "outputs"), "--out", str(out)]) == 0
    return (out / "summary.md").read_text()


@pytest.mark.parametrize("page", ["README.md", "docs/reproduction.md"])
def test_every_mean_interval_and_accuracy_in_a_table_is_printed_by_cmr_report(page: str, printed: str) -> None:
    rows = [line for line in (ROOT / page).read_text().splitlines() if line.startswith("|")]
    quoted = [found for row in rows for found in QUOTED.findall(row)]
    assert quoted
    assert [value for value in quoted if value not in printed] == []
