"""Reading run directories in any state, and telling which of them belong together."""

import json
import math
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from synthetic_runs import write_run

from cmr_runner.figures.dependence import axis_places
from cmr_runner.report.payload import payload
from cmr_runner.results.grouping import dependences, experiments, group_runs, series_along, settings
from cmr_runner.results.quantities import ACCURACY, KAPPA
from cmr_runner.results.reading import find_runs, read_columns, value_text, varying_fields
from cmr_runner.results.selection import SelectionError, selected
from cmr_runner.results.summary import final_cells
from cmr_runner.runs.columns import METRICS


def runs_of(*paths):
    return find_runs(paths)[0]


def test_a_csv_cut_in_mid_line_loses_that_line_only(tmp_path):
    folder = write_run(tmp_path, layers=2)
    file = folder / "metrics.csv"
    whole = read_columns(file)
    file.write_text(file.read_text()[:-7])
    cut = read_columns(file)
    assert len(cut) == len(whole) - 1
    np.testing.assert_array_equal(cut["test_accuracy"], whole["test_accuracy"][:-1])
    assert cut.note == "metrics.csv: 1 damaged line left out"


def test_a_number_that_lost_its_last_digits_is_not_believed(tmp_path):
    (tmp_path / "x.csv").write_text("epoch,kappa\n0,1.0\n1,4.5e1")
    assert list(read_columns(tmp_path / "x.csv")["kappa"]) == [1.0]


@pytest.mark.parametrize("content", ["", "\n", "epoch,test_accuracy\n", "\0\0\0", 'epoch\n"unclosed\n'])
def test_files_without_rows_read_as_empty_columns(tmp_path, content):
    (tmp_path / "metrics.csv").write_text(content)
    assert len(read_columns(tmp_path / "metrics.csv")["test_accuracy"]) in (0, 1)


def test_a_missing_column_reads_as_nan_and_words_as_nan(tmp_path):
    (tmp_path / "x.csv").write_text("epoch,kappa\n0,inf\n1,\n2,what\n")
    table = read_columns(tmp_path / "x.csv")
    assert np.isnan(table["test_accuracy"]).all()
    assert table["kappa"][0] == math.inf
    assert np.isnan(table["kappa"][1:]).all()


def test_a_repeated_epoch_counts_once_with_its_last_row(tmp_path):
    folder = write_run(tmp_path, layers=1)
    (folder / "metrics.csv").write_text("epoch,test_accuracy\n0,0.1\n1,0.2\n1,0.3\n2,0.4\n")
    (run,) = runs_of(tmp_path)
    assert list(run.metrics["test_accuracy"]) == [0.1, 0.3, 0.4]


def test_unreadable_records_are_passed_over_and_said(tmp_path):
    write_run(tmp_path, layers=1)
    for name, text in (("a", "{"), ("b", "[]")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text(text)
    runs, notes = find_runs([tmp_path])
    assert len(runs) == 1
    assert len(notes) == 2


def test_a_record_with_nothing_in_it_is_still_a_run(tmp_path):
    folder = tmp_path / "odd" / "run"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({"identity": None, "config": 3, "choices": [], "final": "x"}))
    (run,) = runs_of(tmp_path)
    assert (run.experiment, run.name, run.status, run.complete) == ("odd", "run", "unknown", False)


def test_the_same_run_in_two_places_counts_once_and_the_further_one_is_kept(tmp_path):
    write_run(tmp_path / "mine", layers=1, status="running", rows=2)
    kept = write_run(tmp_path / "paper", layers=1)
    runs, notes = find_runs([tmp_path])
    assert [run.path for run in runs] == [kept]
    assert len(notes) == 1


def test_overlapping_paths_do_not_double_runs(tmp_path):
    folder = write_run(tmp_path, layers=1)
    assert len(runs_of(tmp_path, folder, tmp_path / "kappa_stress")) == 1


def test_a_completed_run_with_missing_rows_is_not_complete(tmp_path):
    write_run(tmp_path, layers=1, rows=4)
    (run,) = runs_of(tmp_path)
    assert (run.complete, run.ending) == (False, "cut short")


def test_seeds_form_a_group_and_other_differences_part_them(tmp_path):
    for seed in range(3):
        write_run(tmp_path, method="cmr", seed=seed, layers=1)
        write_run(tmp_path, method="cmr", seed=seed, layers=1, options={"lam": 0.1})
        write_run(tmp_path, method="none", seed=seed, layers=1)
    groups = group_runs(runs_of(tmp_path))
    assert [(group.label, group.n) for group in groups] == [("vanilla", 3), ("CMR λ=0.02", 3), ("CMR λ=0.1", 3)]


def test_a_copy_of_the_seed_elsewhere_in_the_config_does_not_part_a_group(tmp_path):
    for seed in range(2):
        folder = write_run(tmp_path, seed=seed, layers=1)
        record = json.loads((folder / "run.json").read_text())
        record["config"]["dataset"] = {"seed": seed}
        (folder / "run.json").write_text(json.dumps(record))
    assert [group.n for group in group_runs(runs_of(tmp_path))] == [2]


def test_runs_of_other_surroundings_are_never_set_side_by_side(tmp_path):
    write_run(tmp_path, method="none", epochs=2, layers=1)
    write_run(tmp_path, method="cmr", epochs=5, layers=1)
    found = settings(runs_of(tmp_path))
    assert [len(setting.groups) for setting in found] == [1, 1]
    assert {setting.distinction for setting in found} == {"epochs=2", "epochs=5"}


def test_groups_of_one_experiment_say_what_else_varies(tmp_path):
    write_run(tmp_path, method="none", epochs=2, layers=1)
    write_run(tmp_path, method="cmr", epochs=5, layers=1)
    ((_, groups),) = experiments(runs_of(tmp_path))
    assert [group.label for group in groups] == ["vanilla epochs=2", "CMR epochs=5"]


def test_nested_choices_of_one_method_do_not_part_it_from_the_others(tmp_path):
    write_run(tmp_path, method="none", layers=1)
    folder = write_run(tmp_path, method="cmr", layers=1)
    record = json.loads((folder / "run.json").read_text())
    record["choices"]["layers@regularizer.layers"] = "weights"
    (folder / "run.json").write_text(json.dumps(record))
    assert len(settings(runs_of(tmp_path))) == 1


def test_a_nested_choice_of_the_regulariser_varies_within_a_setting(tmp_path):
    write_run(tmp_path, method="none", layers=1)
    for method, layers in (("cmr", "weights"), ("cmr_by_head", "heads")):
        folder = write_run(tmp_path, method=method, layers=1)
        record = json.loads((folder / "run.json").read_text())
        record["choices"]["layers@regularizer.layers"] = layers
        (folder / "run.json").write_text(json.dumps(record))
    (setting,) = settings(runs_of(tmp_path))
    assert [group.label for group in setting.groups] == ["vanilla", "CMR", "CMR by head"]


def test_settings_that_differ_by_a_key_of_one_of_them_have_different_names(tmp_path):
    write_run(tmp_path, method="none", layers=1)
    folder = write_run(tmp_path, method="cmr", layers=1)
    record = json.loads((folder / "run.json").read_text())
    record["config"]["trainer"]["extra"] = 1
    (folder / "run.json").write_text(json.dumps(record))
    assert len({setting.title for setting in settings(runs_of(tmp_path))}) == 2


def test_a_method_of_a_later_revision_is_compared_with_vanilla_but_not_averaged_with_the_earlier(tmp_path):
    write_run(tmp_path, method="none", layers=1)
    for seed, revision in ((0, None), (1, 1)):
        folder = write_run(tmp_path, method="cmr", seed=seed, layers=1)
        record = json.loads((folder / "run.json").read_text())
        record["identity"] |= {"revision": revision} if revision else {}
        (folder / "run.json").write_text(json.dumps(record))
    (setting,) = settings(runs_of(tmp_path))
    assert [len(group.runs) for group in setting.groups] == [1, 1, 1]


def test_series_hold_all_but_one_field(tmp_path):
    for lr in (1e-4, 1e-3, 1e-2):
        write_run(tmp_path, method="none", lr=lr, layers=1)
        write_run(tmp_path, method="cmr", lr=lr, layers=1)
    found = series_along(runs_of(tmp_path), "optimizer.lr")
    assert [(series.distinction, len(series.groups)) for series in found] == [("vanilla", 3), ("CMR", 3)]


def test_only_fields_that_vary_make_columns(tmp_path):
    write_run(tmp_path, method="none", layers=1)
    write_run(tmp_path, method="cmr", seed=1, layers=1)
    assert varying_fields(runs_of(tmp_path)) == ["regularizer", "seed"]


def test_final_values_are_in_the_drawn_unit(tmp_path):
    write_run(tmp_path, layers=1)
    (run,) = runs_of(tmp_path)
    (group,) = group_runs([run])
    assert group.final(ACCURACY) == [pytest.approx(100 * run.metrics["test_accuracy"][-1])]


def test_a_singular_seed_is_counted_where_the_others_are_averaged(tmp_path):
    for seed, kappa in enumerate((3.0, 3.2, math.inf)):
        run = write_run(tmp_path, seed=seed, layers=1)
        header, *rows = [line.split(",") for line in (run / METRICS).read_text().splitlines()]
        rows[-1][header.index("kappa_mean")] = str(kappa)
        (run / METRICS).write_text("".join(",".join(row) + "\n" for row in (header, *rows)))
    (group,) = group_runs(runs_of(tmp_path))
    (cell,) = final_cells(group, [KAPPA])
    assert cell.text == "3.10 ×÷ 1.05 (1 of 3 ∞)"
    assert final_cells(replace(group, runs=group.runs[2:]), [KAPPA])[0].text == "∞"


def test_a_swept_key_with_an_infinite_value_is_no_axis(tmp_path):
    """`trainer.clip_norm=.inf` is what the configuration says for no clipping."""
    for value in (1.0, 5.0, math.inf):
        write_run(tmp_path, options={"limit": value}, layers=1)
    runs = runs_of(tmp_path)
    assert [one.key for one in dependences(runs)] == []
    assert axis_places(["1", "5", "inf"]) == ({"1": 0.0, "5": 1.0, "inf": 2.0}, "evenly spaced")
    assert "Infinity" not in json.dumps(payload(experiments(runs)), allow_nan=False)


def test_filters_join_values_by_or_and_filters_by_and(tmp_path):
    for method in ("none", "cmr", "l2"):
        for seed in range(2):
            write_run(tmp_path, method=method, seed=seed, layers=1)
    runs = runs_of(tmp_path)
    assert len(selected(runs, ["regularizer=cmr,none"])) == 4
    assert len(selected(runs, ["regularizer=cmr,none", "seed=1"])) == 2
    assert len(selected(runs, ["regularizer.lam=2e-2"])) == 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("regularizer", "not of the form"),
        ("regularizer=", "not of the form"),
        ("lam=0.02", "did you mean regularizer.lam"),
        ("regularizer=cmrr", "no run has regularizer=cmrr; regularizer is one of cmr"),
    ],
)
def test_a_filter_that_fits_nothing_says_what_would(tmp_path, text, says):
    write_run(tmp_path, layers=1)
    with pytest.raises(SelectionError, match=says):
        selected(runs_of(tmp_path), [text])


def test_numbers_are_the_same_value_however_written():
    assert value_text(1) == value_text(1.0) == "1"
    assert value_text(1e-3) == value_text(0.001)
    assert value_text(True) == "true"


def test_figures_and_reports_import_no_torch_and_start_without_matplotlib():
    code = (
        "import sys, cmr_runner.commands.plot, cmr_runner.commands.report, cmr_runner.report.files;"
        "print([m for m in ('torch', 'hydra', 'pandas', 'matplotlib') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_a_label_does_not_repeat_what_the_choice_says(tmp_path):
    """init=orthogonal has gain 1 and init=kappa_stress 0.06; that is what the choice means."""
    for init, gain in (("kappa_stress", 0.06), ("orthogonal", 1.0)):
        folder = write_run(tmp_path, method="none", init=init, layers=1)
        record = json.loads((folder / "run.json").read_text())
        record["config"]["init"] = {"gain": gain}
        (folder / "run.json").write_text(json.dumps(record))
    groups = group_runs(runs_of(tmp_path))
    assert [group.label for group in groups] == ["vanilla init=kappa_stress", "vanilla init=orthogonal"]


def test_an_experiment_on_several_data_sets_has_a_section_for_each(tmp_path):
    for seed, dataset in enumerate(("mnist", "digits")):
        folder = write_run(tmp_path, "mine", seed=seed, layers=1)
        record = json.loads((folder / "run.json").read_text())
        record["choices"]["dataset"] = dataset
        (folder / "run.json").write_text(json.dumps(record))
    found = experiments(runs_of(tmp_path))
    assert [(name, len(groups)) for name, groups in found] == [("mine, dataset=digits", 1), ("mine, dataset=mnist", 1)]


def test_a_seed_of_the_data_does_not_part_the_seeds_of_a_group(tmp_path):
    """`dataset.seed: 0` equals the seed of the first run, by chance."""
    for seed in range(3):
        folder = write_run(tmp_path, seed=seed, layers=1)
        record = json.loads((folder / "run.json").read_text())
        record["config"]["dataset"] = {"seed": 0}
        (folder / "run.json").write_text(json.dumps(record))
    (group,) = group_runs(runs_of(tmp_path))
    assert group.n == 3
