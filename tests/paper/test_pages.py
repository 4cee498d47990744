"""The pages that quote results quote those of the committed files."""

import re
from pathlib import Path

import pytest
from run_process import record, untimed

from cmr_runner.commands.report import main as report
from cmr_runner.runs.columns import LAYERS, METRICS, SPECTRA

ROOT = Path(__file__).parents[2]
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


def test_runs_that_stand_in_two_experiments_agree_in_every_digit() -> None:
    made: dict[str, list[Path]] = {}
    for run in sorted(path.parent for path in (ROOT / "outputs" / "paper").glob("*/*/run.json")):
        if "copied_from" not in record(run)["provenance"]:
            made.setdefault(run.name, []).append(run)
    twins = [runs for runs in made.values() if len(runs) > 1]
    assert len(twins) >= 5
    for runs in twins:
        for name in (METRICS, LAYERS, SPECTRA):
            first, *others = (untimed((run / name).read_text()) for run in runs)
            assert all(other == first for other in others), (runs, name)
