"""The contract of columns: committed runs, quantities and new rows keep to it."""

import csv
from pathlib import Path

import pytest

from cmr_runner.results import tasks
from cmr_runner.results.quantities import BY_EPOCH, QUANTITIES, SUMMARY
from cmr_runner.runs import columns
from cmr_runner.runs.columns import in_column_order

ROOT = Path(__file__).parents[2]
TABLES = {
    columns.METRICS: columns.METRICS_TABLE,
    columns.LAYERS: columns.LAYERS_TABLE,
    columns.SPECTRA: columns.SPECTRA_TABLE,
}


@pytest.mark.parametrize("name", TABLES)
def test_committed_runs_have_declared_columns_only_in_the_declared_order(name):
    places = {column.name: i for i, column in enumerate(TABLES[name])}
    files = sorted((ROOT / "outputs").glob(f"*/*/*/{name}"))
    assert files
    for file in files:
        with file.open(newline="") as text:
            header = [columns.declared_name(column) for column in next(csv.reader(text))]
        order = [places[column] for column in header]
        assert order == sorted(order), file


def test_every_quantity_is_of_a_declared_column_or_follows_from_one():
    declared = {column.name for table in TABLES.values() for column in table}
    assert declared >= {tasks.TASK, *tasks.JUDGED}
    over_tasks = {f"{part}_{column}" for part in (tasks.MEAN, tasks.FIRST) for column in tasks.JUDGED}
    assert {quantity.column for quantity in (*QUANTITIES, *SUMMARY, *BY_EPOCH)} <= declared | over_tasks


@pytest.mark.parametrize("name", TABLES)
def test_the_design_page_explains_every_column(name):
    section = (ROOT / "docs" / "design.md").read_text().split(f"### {name}\n")[1].split("\n#")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    present = {True: "always", False: "where it applies"}
    expected = [(column.name, column.meaning.replace("|", r"\|"), present[column.always]) for column in TABLES[name]]
    assert rows == [f"| `{name}` | {meaning} | {when} |" for name, meaning, when in expected]


def test_a_row_is_ordered_by_the_contract_and_keeps_what_a_plug_in_adds():
    row = {"mine": 1, "weight_4": 4, "weight_3": 3, "fallbacks": 0, "lr": 0.1}
    made = list(in_column_order(row | dict.fromkeys(reversed(columns.METRICS_COLUMNS), 0)))
    assert tuple(made[:-5]) == columns.METRICS_COLUMNS
    assert made[-5:] == ["lr", "fallbacks", "weight_4", "weight_3", "mine"]


def test_a_row_without_a_required_column_is_refused_by_name():
    row = dict.fromkeys(columns.METRICS_COLUMNS, 0)
    del row["kappa_max"]
    with pytest.raises(ValueError, match="kappa_max"):
        in_column_order(row)


def test_wall_clock_columns_are_the_two_of_seconds():
    assert columns.TIME_COLUMNS == ("seconds", "spectral_seconds")
