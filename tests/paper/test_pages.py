"""The pages that quote results quote those of the committed files."""

import re
from pathlib import Path

import pytest
from run_process import record, untimed

from cmr_runner.commands.report import main as report
from cmr_runner.runs.columns import LAYERS, METRICS, SPECTRA

ROOT = Path(__file__).parents[2]
TIMES = r"(?: × 10[⁰¹²³⁴-⁹⁻]+)?"
# Centre and spread over seeds, an interval, or the accuracy of one run.
KINDS = (
    re.compile(rf"\(?[\d.]+ ± [\d.]+\)?{TIMES}|[\d.]+{TIMES} ×÷ [\d.]+"),
    re.compile(rf"-?[\d.]+{TIMES} to [\d.]+{TIMES}"),
    re.compile(r"(?<!± )(?<![\d.])\d\d\.\d\d(?![\d.])(?! [±×p])"),
)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    """What cmr-report says of the committed runs: the cells of each row, and of each column of an experiment."""
    out = tmp_path_factory.mktemp("report")
    assert report([str(ROOT / "outputs"), "--out", str(out)]) == 0
    found: list[list[str]] = []
    for section in (out / "summary.md").read_text().split("\n\n"):
        rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("|")]
        found += rows
        found += [list(column) for column in zip(*rows, strict=True)]
    return found


@pytest.mark.parametrize(("page", "least"), [("README.md", 6), ("docs/reproduction.md", 200), ("docs/beyond.md", 30)])
def test_the_numbers_of_a_row_are_of_one_row_that_cmr_report_prints(
    page: str, least: int, tables: list[list[str]]
) -> None:
    """Or of one column, where a page turns the table round."""
    lines = [line for line in (ROOT / page).read_text().splitlines() if line.startswith("|")]
    quoted = [(line, kind.findall(line)) for line in lines for kind in KINDS]
    assert sum(len(values) for _, values in quoted) >= least
    wrong = [line for line, values in quoted if values and not any(set(values) <= set(cells) for cells in tables)]
    assert wrong == []


@pytest.mark.parametrize("page", ["README.md", "docs/reproduction.md", "docs/beyond.md"])
def test_every_figure_on_a_page_is_one_that_the_script_draws(page: str) -> None:
    shown = set(re.findall(r"figures/(\w+)\.png", (ROOT / page).read_text()))
    script = (ROOT / "scripts" / "docs_figures.py").read_text()
    assert shown
    assert [name for name in sorted(shown) if f'"{name}": (' not in script] == []


def test_runs_that_stand_in_two_experiments_agree_in_every_digit() -> None:
    made: dict[str, list[Path]] = {}
    for run in sorted(path.parent for path in (ROOT / "outputs" / "paper").glob("*/*/run.json")):
        if "copied_from" not in record(run)["provenance"]:
            made.setdefault(run.name, []).append(run)
    twins = [runs for runs in made.values() if len(runs) > 1]
    assert len(twins) >= 2
    for runs in twins:
        for name in (METRICS, LAYERS, SPECTRA):
            first, *others = (untimed((run / name).read_text()) for run in runs)
            assert all(other == first for other in others), (runs, name)
