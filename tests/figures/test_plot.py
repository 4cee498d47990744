"""cmr-plot as a person uses it: through its arguments, on runs in every state."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from functools import partial

import pytest
from results.beyond_runs import write_stream, write_transformer
from synthetic_runs import write_baselines, write_kappa_stress, write_run, write_sweep

from cmr_runner.commands.plot import main, state, watch
from cmr_runner.figures.baselines import accuracy_bars
from cmr_runner.figures.comparison import comparison_figures
from cmr_runner.figures.style import log_axis, new_figure
from cmr_runner.figures.task_curves import task_figures
from cmr_runner.figures.training_curves import main_figure, training_curves
from cmr_runner.results.grouping import comparable_sets, compared_sets, group_runs, merit
from cmr_runner.results.reading import find_runs

QUICK = ["--format", "png", "--dpi", "50", "--jobs", "1"]
PANELS = ["main_a_test_accuracy", "main_b_grad_norm", "main_c_kappa_mean", "main_d_mean_abs_moment"]


def drawn(out):
    return sorted(path.relative_to(out).with_suffix("").as_posix() for path in out.rglob("*.png"))


def is_picture(path):
    start = path.read_bytes()[:5]
    return start in (b"\x89PNG\r", b"%PDF-", b"<?xml")


def test_the_papers_seven_plots_come_from_its_two_experiments(tmp_path, capsys):
    write_kappa_stress(tmp_path, seeds=3, layers=2)
    write_baselines(tmp_path, seeds=2, epochs=3, layers=2)
    assert main([str(tmp_path), "--only", "main,baselines", *QUICK]) == 0
    appendix = ["accuracy_bars", "kappa_gram_median", "kappa_gram_p90"]
    expected = [f"kappa_stress/{name}" for name in ["main", *PANELS]] + [
        f"standard_baselines/{name}" for name in appendix
    ]
    assert drawn(tmp_path / "figures") == sorted(expected)
    captions = (tmp_path / "figures" / "captions.md").read_text()
    assert "Student's 95 % interval" in captions
    assert all(name in captions for name in expected)


def test_every_figure_is_drawn_where_there_is_data_for_it(tmp_path, capsys):
    write_kappa_stress(tmp_path, seeds=2, layers=3, diagnostics=True)
    write_run(tmp_path, method="cmr_learned", layers=3, diagnostics=True)
    write_sweep(tmp_path, seeds=1, layers=1)
    names = [
        "comparison",
        "time",
        "tradeoff",
        "scale",
        "layers",
        "spectra",
        "activity",
        "moment_weights",
        "diagnostics",
    ]
    assert main([str(tmp_path), "--only", ",".join(["sweep", *names]), *QUICK]) == 0
    found = drawn(tmp_path / "figures")
    assert set(found) >= {f"kappa_stress/{name}" for name in names} | {"sweep/sweep", "sweep/comparison"}
    assert "not drawn" not in capsys.readouterr().out


def test_text_is_drawn_and_ranked_by_its_loss(tmp_path, capsys):
    for method, accuracy in (("none", 0.2), ("cmr", 0.5), ("l2", 0.4)):
        write_run(tmp_path, "prose", method, layers=1, target=(accuracy, 9.0), text=True)
    names = ["comparison", "time", "tradeoff", "curves", "scale"]
    assert main([str(tmp_path), "--only", ",".join(names), *QUICK]) == 0
    assert drawn(tmp_path / "figures") == sorted(f"prose/{name}" for name in names)
    captions = (tmp_path / "figures" / "captions.md").read_text()
    assert "Least loss first." in captions
    runs, _ = find_runs([tmp_path])
    assert [group.method for group in sorted(group_runs(runs), key=merit, reverse=True)] == ["cmr", "l2", "none"]


def test_a_transformer_is_drawn_by_kind_of_layer_and_with_its_validation(tmp_path, capsys):
    for seed in range(3):
        write_transformer(tmp_path, "none", seed=seed)
        write_transformer(tmp_path, "cmr_by_head", by_head=True, seed=seed)
    assert main([str(tmp_path), "--only", "learning,kinds,layers,spectra", *QUICK]) == 0
    names = ["kinds", "layers", "learning", "spectra"]
    assert drawn(tmp_path / "figures") == [f"transformer/{name}" for name in names]
    assert "By head, κ is that of each head's part" in (tmp_path / "figures" / "captions.md").read_text()


def test_a_stream_of_tasks_is_drawn_by_default_task_by_task(tmp_path, capsys):
    for seed in range(3):
        for method in ("none", "cmr"):
            write_stream(tmp_path, method, seed=seed, epochs=8)
    write_stream(tmp_path, "l2", epochs=8, rows=4, status="running")
    assert main([str(tmp_path), *QUICK]) == 0
    assert drawn(tmp_path / "figures") == ["stream/comparison", "stream/tasks"]
    (setting,) = comparable_sets(find_runs([tmp_path])[0])
    (drawing,) = task_figures(setting)
    lines = [line for line in drawing.figure.axes[0].lines if len(line.get_xdata()) == 4]
    assert [line.get_xdata().tolist() for line in lines] == [[1, 2, 3, 4]] * 2


def test_an_axis_of_kappa_ends_where_a_matrix_is_singular_and_says_so(tmp_path):
    write_run(tmp_path, "lost", "l2", layers=1, init="glorot_uniform", target=(0.5, 1e40))
    write_run(tmp_path, "lost", "none", layers=1, init="glorot_uniform")
    (setting,) = comparable_sets(find_runs([tmp_path])[0])
    (drawing,) = training_curves(setting)
    assert drawing.figure.axes[2].get_ylim()[1] == 1e16
    assert "ends at 10¹⁶" in drawing.note


def test_an_interval_ends_where_the_quantity_does(tmp_path):
    for seed, accuracy in enumerate((0.5, 0.99, 0.99)):
        write_run(tmp_path, "narrow", seed=seed, layers=1, init="glorot_uniform", target=(accuracy, 1.0 + 20 * seed))
        write_run(tmp_path, "narrow", "none", seed=seed, layers=1, init="glorot_uniform")
    (setting,) = compared_sets(find_runs([tmp_path])[0])
    (drawing,) = comparison_figures(setting)
    accuracy, kappa = drawing.figure.axes
    assert max(max(line.get_xdata()) for line in accuracy.lines) == 100
    assert min(min(line.get_xdata()) for line in kappa.lines) >= 1


@pytest.mark.parametrize("high", [1.06, 1.5, 4, 60, 1e5])
def test_a_log_axis_has_readable_ticks_over_any_range(high):
    axes = new_figure().subplots()
    axes.plot([0, 1], [1.0, high])
    log_axis(axes)
    low, top = axes.get_ylim()
    assert sum(low <= tick <= top for tick in axes.get_yticks()) >= 3


def test_what_is_missing_is_said_with_the_command_that_makes_it(tmp_path, capsys):
    write_run(tmp_path, method="cmr", layers=1)
    assert main([str(tmp_path), *QUICK]) == 0
    said = capsys.readouterr().out.splitlines()
    missing = {line.split()[0]: line for line in said if "not drawn" in line}
    assert missing["main"].endswith("make them with: cmr-run -m experiment=kappa_stress")
    assert missing["baselines"].endswith("make them with: cmr-run -m experiment=standard_baselines")
    assert "regularizer.lam" in missing["sweep"]
    assert said[-1] == "0 pictures, 0 drawn now; --all draws the other kinds too"


def test_the_same_runs_give_the_same_bytes_in_every_format(tmp_path):
    write_kappa_stress(tmp_path / "runs", seeds=2, layers=2)
    for name in ("a", "b"):
        arguments = [
            "--only",
            "layers,activity",
            "--format",
            "png,pdf,svg",
            "--dpi",
            "50",
            "--out",
            str(tmp_path / name),
        ]
        # A process each, so that no state left behind can make them alike.
        command = [sys.executable, "-m", "cmr_runner.commands.plot", str(tmp_path / "runs"), *arguments]
        subprocess.run(command, check=True, capture_output=True)
    first, second = (sorted((tmp_path / name / "kappa_stress").iterdir()) for name in ("a", "b"))
    assert [path.name for path in first] == [f"{n}.{e}" for n in ("activity", "layers") for e in ("pdf", "png", "svg")]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert all(map(is_picture, first))


def test_several_processes_draw_what_one_draws(tmp_path, capsys):
    write_kappa_stress(tmp_path / "runs", seeds=1, layers=2)
    for jobs in ("1", "2"):
        out = ["--out", str(tmp_path / jobs)]
        assert main([str(tmp_path / "runs"), "--only", "layers,activity", *QUICK[:-1], jobs, *out]) == 0
    one, two = ({path.name: path.read_bytes() for path in (tmp_path / jobs).rglob("*.png")} for jobs in "12")
    assert len(one) == 2
    assert one == two


def test_a_second_time_only_what_changed_is_drawn_again(tmp_path, capsys):
    write_kappa_stress(tmp_path, seeds=1, layers=1)
    other = write_run(tmp_path, "mine", layers=1)
    arguments = [str(tmp_path), "--only", "layers", *QUICK]
    main(arguments)
    times = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.png")}
    assert main(arguments) == 0
    assert capsys.readouterr().out.endswith("2 pictures, 0 drawn now; --all draws the other kinds too\n")
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.png")} == times
    (other / "layers.csv").write_text((other / "layers.csv").read_text().replace("256,256", "128,256"))
    assert main(arguments) == 0
    assert [path.name for path, was in times.items() if path.stat().st_mtime_ns != was] == ["layers.png"]


def test_a_picture_of_other_runs_under_the_same_name_is_drawn_again(tmp_path, capsys):
    write_kappa_stress(tmp_path, seeds=2, layers=1)
    arguments = [str(tmp_path), "--only", "layers", *QUICK]
    pictures = []
    for words in ([], ["--filter", "seed=0"], []):
        assert main([*arguments, *words]) == 0
        pictures.append((tmp_path / "figures" / "kappa_stress" / "layers.png").read_bytes())
    assert pictures[0] == pictures[2] != pictures[1]


def test_many_methods_are_drawn_not_left_out(tmp_path, capsys):
    for number in range(14):
        write_run(tmp_path, "rivals", f"method_{number}", layers=1)
    assert main([str(tmp_path), "--all", *QUICK]) == 0
    found = drawn(tmp_path / "figures")
    for name in ("curves_test_accuracy", "curves_kappa_mean", "time", "tradeoff", "layers", "spectra", "scale"):
        assert f"rivals/{name}" in found
    assert "left out" not in capsys.readouterr().out


def test_a_picture_of_the_first_few_groups_says_of_how_many(tmp_path):
    for number in range(22):
        target = (0.5 + 0.01 * number, 9.0)
        write_run(tmp_path, "kappa_stress", "cmr", layers=1, epochs=1, options={"lam": 0.01 * (number + 1)})
        write_stream(tmp_path, f"method_{number}", epochs=4, target=target)
    stress, stream = comparable_sets(find_runs([tmp_path])[0])
    assert all(drawing.note.endswith("The first 8 of 22 groups.") for drawing in main_figure(stress))
    assert accuracy_bars(stress).note.endswith("The first 20 of 22 groups.")
    (drawing,) = task_figures(stream)
    assert drawing.note.endswith("The first 20 of 22 groups.")
    few = replace(stress, groups=stress.groups[:2])
    assert not any("The first" in drawing.note for drawing in (*main_figure(few), accuracy_bars(few)))


def test_file_names_stay_short_whatever_varies(tmp_path, capsys):
    for epochs in (3, 4):
        for lr in (0.001, 0.0123456789):
            write_run(tmp_path, "x" * 80, epochs=epochs, lr=lr, layers=1, init=f"an_init_of_a_very_long_name_{epochs}")
    assert main([str(tmp_path), "--all", *QUICK]) == 0
    names = [part for name in drawn(tmp_path / "figures") for part in name.split("/")]
    assert max(map(len, names)) <= 60


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--format", "jpg"], "argument --format: 'jpg' is not one of png, pdf, svg"),
        (["--dpi", "-3"], "argument --dpi: '-3' is not a whole number from 30 to 1200"),
        (["--dpi", "many"], "argument --dpi: 'many' is not a whole number from 30 to 1200"),
        (["--only", "mian"], "argument --only: 'mian' is not one of main,"),
        (["--filter", "regularizer=dropout"], "argument --filter: no run has regularizer=dropout"),
        (["--filter", "lr=1"], "did you mean optimizer.lr?"),
        (["--by", "colour"], "argument --by: 'colour' is not a field of these runs"),
        (["--by", "seed"], "argument --by: 'seed' does not tell groups of runs apart"),
        (["--colour"], "unrecognized arguments: --colour"),
    ],
)
def test_a_wrong_option_takes_one_line_and_exit_code_2(tmp_path, capsys, arguments, says):
    write_run(tmp_path, layers=1)
    with pytest.raises(SystemExit) as stopped:
        main([str(tmp_path), *arguments])
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1


def test_a_path_that_is_not_there_is_a_wrong_argument(tmp_path, capsys):
    with pytest.raises(SystemExit) as stopped:
        main([str(tmp_path / "nowhere")])
    assert stopped.value.code == 2
    assert "nowhere does not exist" in capsys.readouterr().err


def test_an_empty_directory_is_said_to_be_empty(tmp_path, capsys):
    assert main([str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith("cmr-plot: no runs under")


def test_an_output_directory_that_cannot_be_made_is_one_line(tmp_path, capsys):
    write_run(tmp_path, layers=1)
    (tmp_path / "file").touch()
    assert main([str(tmp_path), "--only", "layers", "--out", str(tmp_path / "file"), *QUICK]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_list_tells_groups_seeds_and_endings(tmp_path, capsys):
    write_kappa_stress(tmp_path, seeds=2, layers=1)
    write_run(tmp_path, method="none", seed=5, status="diverged", layers=1)
    assert main([str(tmp_path), "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "kappa_stress: 2 group(s), 5 run(s)"
    assert lines[3].startswith("vanilla  2, 1 diverged")
    assert not (tmp_path / "figures").exists()


def test_by_draws_the_dependence_on_a_field(tmp_path, capsys):
    for lr in (1e-4, 1e-3):
        for method in ("none", "cmr"):
            write_run(tmp_path, method=method, lr=lr, layers=1)
    assert main([str(tmp_path), "--by", "optimizer.lr", *QUICK]) == 0
    expected = ["by-lr", "curves_by-CMR-lr", "curves_by-vanilla-lr"]
    assert drawn(tmp_path / "figures") == [f"kappa_stress/{name}" for name in expected]


def write_configured(root, number, **config):
    """A run with other values in sections of its configuration."""
    folder = write_run(root, "mine", layers=1, name=f"number{number}")
    record = json.loads((folder / "run.json").read_text())
    for section, values in config.items():
        record["config"].setdefault(section, {}).update(values)
    (folder / "run.json").write_text(json.dumps(record))


def test_swept_keys_that_end_alike_have_a_picture_each(tmp_path, capsys):
    for number, (epochs, part) in enumerate(((1, 0.1), (2, 0.1), (4, 0.1), (1, 0.2), (1, 0.3))):
        write_configured(tmp_path, number, regularizer={"warmup": epochs}, schedule={"warmup": part})
    assert main([str(tmp_path), "--only", "dependence", *QUICK]) == 0
    assert drawn(tmp_path / "figures") == ["mine/dependence-regularizer.warmup", "mine/dependence-schedule.warmup"]


@pytest.mark.parametrize(
    ("section", "labels"),
    [("regularizer", ["CMR ε=1e-08", "CMR ε=1e-06"]), ("optimizer", ["CMR eps=1e-08", "CMR eps=1e-06"])],
)
def test_the_papers_letters_stand_for_values_of_the_regulariser_only(tmp_path, section, labels):
    for number, eps in enumerate((1e-8, 1e-6)):
        write_configured(tmp_path, number, **{section: {"eps": eps}})
    assert [group.label for group in group_runs(find_runs([tmp_path])[0])] == labels


def test_filter_leaves_other_runs_out(tmp_path, capsys):
    write_kappa_stress(tmp_path, seeds=2, layers=1)
    assert main([str(tmp_path), "--list", "--filter", "regularizer=cmr"]) == 0
    assert "vanilla" not in capsys.readouterr().out


def odd_runs(root):
    """Runs with everything that can go wrong in their files."""
    write_kappa_stress(root, seeds=2, layers=2)
    write_run(root, method="cmr", seed=7, status="running", rows=1, layers=2)
    write_run(root, method="cmr", seed=8, status="failed", rows=0, layers=2)
    write_run(root, method="none", seed=8, status="diverged", layers=2)
    write_run(root, method="cmr", seed=9, epochs=2, layers=2)
    write_run(root, 'it\'s <b>"odd" & new</b>', "a|method <i>", name="x <script>alert(1)</script> 'y\"", layers=2)
    cut = write_run(root, method="none", seed=3, layers=2)
    for name in ("metrics.csv", "layers.csv", "spectra.csv"):
        (cut / name).write_text((cut / name).read_text()[:-40])
    bare = write_run(root, method="cmr", seed=3, layers=2)
    (bare / "metrics.csv").write_text("epoch,step\n0,0\n1,5\n2,9\n3,9\n4,9\n5,9\n")
    (bare / "layers.csv").unlink()
    (bare / "spectra.csv").write_text("epoch,layer\n0,a\n")
    (write_run(root, method="cmr", seed=4, layers=2) / "layers.csv").write_text("epoch,kappa\n0,1\n5,2\n")
    blank = write_run(root, method="l2", layers=2)
    rows = (blank / "metrics.csv").read_text().splitlines()
    (blank / "metrics.csv").write_text(
        "\n".join([rows[0], *(f"{i}" + ",nan" * rows[0].count(",") for i in range(6))]) + "\n"
    )


def test_odd_runs_never_end_in_a_traceback(tmp_path, capsys):
    odd_runs(tmp_path)
    assert main([str(tmp_path), "--all", *QUICK]) == 0
    heard = capsys.readouterr()
    assert "cannot be drawn" not in heard.err
    assert "damaged line left out" in heard.err
    found = drawn(tmp_path / "figures")
    assert "kappa_stress/main-epochs=5" in found
    assert "it-s-b-odd-new-b/layers" in found


def test_runs_that_have_only_begun_are_drawn(tmp_path, capsys):
    for method in ("none", "cmr"):
        write_run(tmp_path, method=method, status="running", rows=2, layers=2)
    assert main([str(tmp_path), "--only", "main,layers,spectra", *QUICK]) == 0
    assert "kappa_stress/main" in drawn(tmp_path / "figures")
    assert "running" in (tmp_path / "figures" / "captions.md").read_text()


@pytest.mark.slow
def test_five_hundred_runs_stay_within_a_gigabyte(tmp_path):
    for lam in range(10):
        for rho in range(10):
            for seed in range(5):
                options = {"lam": 0.01 * (lam + 1), "rho_spec": 0.1 * (rho + 1)}
                write_run(tmp_path, "sweep", seed=seed, epochs=3, layers=2, options=options)
    # Not ru_maxrss for the process itself: it begins with the peak of whoever started it, a test worker of any size.
    script = (
        "import resource, sys; from cmr_runner.commands import plot, report;"
        f"plot.main([{str(tmp_path)!r}]); report.main([{str(tmp_path)!r}]);"
        "(own,) = [int(line.split()[1]) for line in open('/proc/self/status') if line.startswith('VmHWM')];"
        "children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss;"
        "print(max(own, children) / 1024, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert float(done.stderr.splitlines()[-1]) < 1000  # what else stands there is not about memory
    assert (tmp_path / "figures" / "sweep" / "sweep.png").exists()


def while_asleep(*changes):
    """A sleep during which one change after another happens, then Ctrl-C."""
    coming = iter(changes)

    def sleep(_):
        change = next(coming, None)
        if change is None:
            raise KeyboardInterrupt
        change()

    return sleep


def test_watch_redraws_when_a_run_changes_and_only_then(tmp_path):
    folder = write_run(tmp_path, layers=1)
    drawings = []
    sleep = while_asleep(lambda: None, lambda: (folder / "metrics.csv").write_text("epoch\n0\n"), lambda: None)
    with pytest.raises(KeyboardInterrupt):
        watch([tmp_path], lambda: drawings.append(state([tmp_path])) or 0, 1, sleep)
    assert len(drawings) == 2


def test_watch_waits_for_a_run_that_fits_the_filter(tmp_path, capsys, monkeypatch):
    write_run(tmp_path, seed=0, layers=1)
    sleep = while_asleep(lambda: write_run(tmp_path, seed=7, layers=1))
    monkeypatch.setattr("cmr_runner.commands.plot.watch", partial(watch, sleep=sleep))
    assert main([str(tmp_path), "--watch", "--filter", "seed=7", "--only", "layers", *QUICK]) == 130
    heard = capsys.readouterr()
    assert "cmr-plot: no run has seed=7; seed is one of 0" in heard.err
    assert "1 pictures, 1 drawn now" in heard.out


def test_watch_refuses_a_filter_of_an_unknown_field_at_once(tmp_path, capsys):
    write_run(tmp_path, layers=1)
    with pytest.raises(SystemExit) as stopped:
        main([str(tmp_path), "--watch", "--filter", "colour=red", *QUICK])
    assert stopped.value.code == 2
    assert "'colour' is not a field of these runs" in capsys.readouterr().err


def test_captions_of_earlier_calls_stay_as_long_as_their_pictures(tmp_path, capsys):
    write_kappa_stress(tmp_path, seeds=1, layers=1)

    def captioned(figure):
        assert main([str(tmp_path), "--only", figure, *QUICK]) == 0
        return re.findall("`(.*)`", (tmp_path / "figures" / "captions.md").read_text())

    assert captioned("layers") == ["kappa_stress/layers"]
    assert captioned("time") == ["kappa_stress/layers", "kappa_stress/time"]
    (tmp_path / "figures" / "kappa_stress" / "layers.png").unlink()
    assert captioned("time") == ["kappa_stress/time"]


def test_the_ledger_does_not_grow_by_figures_that_draw_nothing(tmp_path, capsys):
    folder = write_run(tmp_path, layers=1)
    counts = []
    for line in range(3):
        (folder / "metrics.csv").write_text((folder / "metrics.csv").read_text() + f"{line}\n")
        assert main([str(tmp_path), "--only", "layers,learning,kinds,diagnostics", *QUICK]) == 0
        counts.append(len(json.loads((tmp_path / "figures" / ".drawn.json").read_text())))
    assert counts == [4, 4, 4]


def test_figures_are_not_mistaken_for_runs(tmp_path, capsys):
    write_run(tmp_path, layers=1)
    main([str(tmp_path), "--only", "layers", *QUICK])
    before = state([tmp_path])
    capsys.readouterr()
    main([str(tmp_path), "--list"])
    assert "1 run(s)" in capsys.readouterr().out
    assert state([tmp_path]) == before
