"""One hostile or damaged run directory is named and left out; all others are read."""

import json
import os

import pytest
from synthetic_runs import write_kappa_stress, write_run

from cmr_runner.commands import plot, report
from cmr_runner.results import memory
from cmr_runner.results.reading import find_runs
from cmr_runner.runs.columns import TABLES
from cmr_runner.runs.integrity import DIGEST, FILES, fingerprints, record_digest


def deep_nesting(folder):
    (folder / "run.json").write_text('{"config":' * 100_000 + "{}" + "}" * 100_000)


def nesting_that_json_still_reads(folder):
    (folder / "run.json").write_text('{"config":' * 900 + "{}" + "}" * 900)


def a_number_of_400_digits(folder):
    edit(folder, lambda record: record["config"].update(seed=int("9" * 400)))


def a_lone_surrogate(folder):
    text = (folder / "run.json").read_text().replace('"mlp"', '"\\ud800"')
    (folder / "run.json").write_text(text)


def a_fifo_for_run_json(folder):
    (folder / "run.json").unlink()
    os.mkfifo(folder / "run.json")


def a_list(folder):
    (folder / "run.json").write_text("[1, 2]")


def odd_types(folder):
    edit(folder, lambda record: record.update(choices=[1], identity="x", provenance={"seed": {"a": [1]}}, config=7))


def edit(folder, change):
    record = json.loads((folder / "run.json").read_text())
    change(record)
    (folder / "run.json").write_text(json.dumps(record))


@pytest.mark.parametrize(
    "damage",
    [
        deep_nesting,
        a_number_of_400_digits,
        a_lone_surrogate,
        a_fifo_for_run_json,
        a_list,
    ],
)
def test_a_hostile_run_is_named_and_left_out_of_figures_and_report(tmp_path, capsys, damage):
    write_kappa_stress(tmp_path, seeds=1, layers=1)
    bad = write_run(tmp_path, "bad", layers=1)
    damage(bad)
    assert plot.main([str(tmp_path), "--only", "comparison", "--dpi", "50", "--jobs", "1"]) == 0
    assert report.main([str(tmp_path)]) == 0
    heard = capsys.readouterr()
    assert "1 pictures" in heard.out
    assert heard.err.count(f"{bad}: run.json") == 2
    assert heard.err.count("run left out") == 2


@pytest.mark.parametrize("name", TABLES)
def test_a_fifo_in_place_of_a_table_does_not_hang(tmp_path, capsys, name):
    folder = write_run(tmp_path, layers=1)
    (folder / name).unlink()
    os.mkfifo(folder / name)
    assert plot.main([str(tmp_path), "--all", "--dpi", "50", "--jobs", "1"]) == 0
    assert report.main([str(tmp_path)]) == 0


@pytest.mark.parametrize("damage", [odd_types, nesting_that_json_still_reads])
def test_odd_content_that_can_be_read_still_gives_a_report(tmp_path, capsys, damage):
    write_run(tmp_path, layers=1)
    damage(write_run(tmp_path, "odd", layers=1))
    assert report.main([str(tmp_path)]) == 0


def finished(folder):
    """As cmr-run leaves a run: with the digests of its files and of its record."""

    def change(record):
        record[FILES] = fingerprints(folder, TABLES)
        record[DIGEST] = record_digest(record)

    edit(folder, change)
    return folder


def test_verify_finds_what_other_readers_cannot_see(tmp_path, capsys):
    folders = [finished(write_run(tmp_path, seed=seed, layers=1)) for seed in range(3)]
    write_run(tmp_path, seed=3, layers=1)
    assert report.main([str(tmp_path), "--verify"]) == 0
    said = "3 intact, 0 damaged, 1 not finished or of a version that recorded no digests\n"
    assert capsys.readouterr().out == said
    text = (folders[1] / "metrics.csv").read_text()
    (folders[1] / "metrics.csv").write_text(text.replace("1", "2", 1) if "1" in text else text)
    assert report.main([str(tmp_path), "--verify"]) == 1
    printed = capsys.readouterr().out
    assert f"{folders[1]}: metrics.csv has other contents than the run wrote" in printed
    assert "2 intact, 1 damaged" in printed
    assert not (tmp_path / "report").exists()


def test_a_table_of_another_size_or_an_edited_record_is_a_damaged_run(tmp_path):
    short, edited, _ = (finished(write_run(tmp_path, seed=seed, layers=1)) for seed in range(3))
    (short / "layers.csv").write_text("epoch\n")
    edit(edited, lambda record: record.update(status="diverged"))
    runs, notes = find_runs([tmp_path])
    assert [run.seed for run in runs] == [2]
    assert [note.split(": ")[1] for note in notes] == [
        f"layers.csv has 6 bytes, not {json.loads((short / 'run.json').read_text())[FILES]['layers.csv']['size']}, "
        "run left out",
        "run.json does not have the digest it was written with, run left out",
    ]


def test_what_is_kept_of_many_runs_is_never_trusted_over_the_files(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(memory, "LEAST_ENTRIES", 2)
    folders = [write_run(tmp_path / "runs", seed=seed, layers=1) for seed in range(3)]
    fresh = [(run.record, run.recipe, run.metrics["kappa_mean"].tolist()) for run in find_runs([tmp_path / "runs"])[0]]
    (kept,) = (tmp_path / "cache").rglob("runs-*.json")
    again = [(run.record, run.recipe, run.metrics["kappa_mean"].tolist()) for run in find_runs([tmp_path / "runs"])[0]]
    assert again == fresh
    (folders[0] / "metrics.csv").write_text("epoch,kappa_mean\n0,7\n")
    edit(folders[1], lambda record: record.update(status="failed"))
    first, second, _ = find_runs([tmp_path / "runs"])[0]
    assert first.metrics["kappa_mean"].tolist() == [7]
    assert second.status == "failed"
    kept.write_text('{"format": 1, "entries": [')
    assert len(find_runs([tmp_path / "runs"])[0]) == 3
