"""cmr-report: what it writes and prints, without a browser."""

import csv
import json
import re
from html.parser import HTMLParser
from math import exp, log
from statistics import geometric_mean, median, stdev

import numpy as np
import pytest
from figures.test_plot import odd_runs
from results.beyond_runs import write_stream, write_transformer
from synthetic_runs import write_kappa_stress, write_run

from cmr_runner.commands.report import main
from cmr_runner.paper.verdicts import RULE
from cmr_runner.report.page import script_json
from cmr_runner.results.numerals import number, times_over
from cmr_runner.results.text_table import aligned, markdown


class Words(HTMLParser):
    """The text a reader sees, and every attribute that could load something."""

    def __init__(self):
        super().__init__()
        self.text, self.links, self.inside = [], [], ""

    def handle_starttag(self, tag, attrs):
        self.inside = tag
        self.links += [value for name, value in attrs if name in ("src", "href", "srcset", "data")]

    def handle_endtag(self, tag):
        self.inside = ""

    def handle_data(self, data):
        if self.inside not in ("script", "style"):
            self.text.append(data)


def report(path, *arguments):
    assert main([str(path), *arguments]) == 0
    return (path / "report" / "report.html").read_text()


def payload_of(html):
    return json.loads(re.search(r'<script id="payload" type="application/json">(.*?)</script>', html, re.S)[1])


def test_the_page_is_self_contained(tmp_path, capsys):
    write_kappa_stress(tmp_path, seeds=2, layers=2)
    words = Words()
    words.feed(report(tmp_path))
    assert all(link.startswith("#") or link == "data:," for link in words.links)


def test_summary_numbers_are_those_of_the_csv_files(tmp_path, capsys):
    folders = [write_run(tmp_path, seed=seed, layers=1) for seed in range(3)]
    report(tmp_path)
    finals = []
    for folder in folders:
        with (folder / "metrics.csv").open() as file:
            finals.append(float(list(csv.DictReader(file))[-1]["test_accuracy"]))
    with (tmp_path / "report" / "summary.csv").open() as file:
        (row,) = [row for row in csv.DictReader(file) if row["quantity"] == "test_accuracy"]
    assert float(row["centre"]) == pytest.approx(sum(finals) / 3)
    assert (row["n"], row["seeds"], row["scale"]) == ("3", "0 1 2", "linear")
    printed = capsys.readouterr().out
    assert f"{100 * sum(finals) / 3:.2f} ±" in printed


def test_the_markdown_tells_each_run_by_its_end_and_each_group_by_epoch(tmp_path, capsys):
    folders = [write_run(tmp_path, seed=seed, layers=3, epochs=2) for seed in range(2)]
    report(tmp_path)
    medians, finals = [], []
    for folder in folders:
        with (folder / "layers.csv").open() as file:
            medians.append(median(float(row["sigma_max"]) for row in csv.DictReader(file) if row["epoch"] == "1"))
        with (folder / "metrics.csv").open() as file:
            finals.append(100 * float(list(csv.DictReader(file))[-1]["test_accuracy"]))
    summary = (tmp_path / "report" / "summary.md").read_text()
    by_epoch, by_run = (_table(summary, heading) for heading in ("kappa_stress, by epoch", "kappa_stress, by run"))
    assert [row["epoch"] for row in by_epoch] == ["0", "1", "2"]
    assert by_epoch[1]["σ_max"] == times_over(geometric_mean(medians), exp(stdev(map(log, medians))))
    assert [(row["seed"], row["accuracy %"]) for row in by_run] == [
        (str(i), number(x, 4)) for i, x in enumerate(finals)
    ]


def _table(text, heading):
    """The rows of the Markdown table below a heading."""
    lines = text.partition(f"## {heading}\n\n")[2].partition("\n\n")[0].splitlines()
    header, _, *rows = ([cell.strip() for cell in line.strip("|").split(" | ")] for line in lines)
    return [dict(zip(header, row, strict=True)) for row in rows]


def test_the_rule_and_the_verdicts_are_on_the_page_and_in_the_markdown(tmp_path, capsys):
    write_kappa_stress(tmp_path, seeds=3, layers=1)
    words = Words()
    words.feed(report(tmp_path))
    text = " ".join(words.text)
    assert RULE in text
    assert "cmr-run -m experiment=standard_baselines" in text  # what was not run
    summary = (tmp_path / "report" / "summary.md").read_text()
    assert RULE in summary
    assert "standard baselines: no runs in the paper's setting" in summary


def test_a_users_own_runs_get_no_verdict(tmp_path, capsys):
    write_kappa_stress(tmp_path, seeds=3, epochs=1, layers=1)
    words = Words()
    words.feed(report(tmp_path))
    printed = capsys.readouterr().out
    for text in (" ".join(words.text).replace(RULE, ""), printed):
        assert "same direction" not in text
        assert "in the paper's setting" in text
        assert "cmr-run -m experiment=kappa_stress" in text


def test_names_cannot_break_out_of_the_page(tmp_path, capsys):
    odd_runs(tmp_path)
    html = report(tmp_path)
    words = Words()
    words.feed(html)
    assert "<script>alert(1)" not in html
    assert any("x <script>alert(1)</script> 'y\"" in text for text in words.text)
    names = [run["name"] for run in payload_of(html)["runs"]]
    assert "x <script>alert(1)</script> 'y\"" in names


def test_json_in_a_script_cannot_end_it():
    text = script_json({"a": "</script><!-- & \u2028"})
    assert "<" not in text
    assert "\u2028" not in text
    assert json.loads(text) == {"a": "</script><!-- & \u2028"}


def test_charts_get_the_curves_the_runs_logged(tmp_path, capsys):
    folder = write_run(tmp_path, layers=2)
    data = payload_of(report(tmp_path))
    (group,) = data["groups"]
    with (folder / "metrics.csv").open() as file:
        logged = [100 * float(row["test_accuracy"]) for row in csv.DictReader(file)]
    assert group["curves"]["test_accuracy"][0] == pytest.approx(logged, rel=1e-5)
    assert data["runs"][0]["curves"]["grad_norm"][0] is None  # not defined before training
    assert len(group["kappa"]) == 2


def test_the_report_repeats_byte_for_byte(tmp_path, capsys):
    write_kappa_stress(tmp_path, seeds=2, layers=1)
    assert report(tmp_path) == report(tmp_path)


def test_odd_runs_are_reported_with_what_is_wrong(tmp_path, capsys):
    odd_runs(tmp_path)
    words = Words()
    words.feed(report(tmp_path))
    text = " ".join(words.text)
    for said in ("layer 3 is not finite", "damaged line left out", "running", "failed"):
        assert said in text


def test_an_empty_directory_and_a_wrong_filter_are_one_line(tmp_path, capsys):
    assert main([str(tmp_path)]) == 1
    assert capsys.readouterr().err.count("\n") == 1
    write_run(tmp_path, layers=1)
    with pytest.raises(SystemExit) as stopped:
        main([str(tmp_path), "--filter", "seed=99"])
    assert stopped.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_tables_line_up_and_escape():
    assert aligned(["a", "b"], [["κκκ", "1"]]).splitlines() == ["a    b", "───  ─", "κκκ  1"]
    assert markdown(["a|b"], [["<i>\n"]]).splitlines() == ["| a\\|b |", "| --- |", "| &lt;i&gt; |"]


def test_the_page_names_no_machine_unless_asked(tmp_path, capsys, monkeypatch):
    folder = write_run(tmp_path / "runs", layers=1)
    record = json.loads((folder / "run.json").read_text())
    secret = "/home/somebody/cluster"
    record["provenance"] |= {"host": "node17.example", "command": f"{secret}/bin/cmr-run output_root={secret}/out"}
    record["config"]["dataset"] = {"root": f"{secret}/data"}
    (folder / "run.json").write_text(json.dumps(record))
    write_run(tmp_path / "runs", seed=1, layers=1).joinpath("run.json").write_text("{")
    monkeypatch.chdir(tmp_path)
    for words, there in ([], False), (["--provenance"], True):
        assert main(["runs", *words]) == 0
        html = (tmp_path / "runs" / "report" / "report.html").read_text()
        own = html.partition("<script>")[0]  # before the library
        assert [fact in own for fact in (secret, "node17.example")] == [there, there]
        assert str(tmp_path) not in own or there
        assert "…/cmr-run" in own or there


def test_the_page_carries_a_few_epochs_of_the_spectra_the_ends_among_them(tmp_path, capsys):
    folder = write_run(tmp_path, epochs=30, layers=1, spectra="all")
    (group,) = payload_of(report(tmp_path))["groups"]
    frames = group["spectra"]["0"]
    assert (len(frames["epochs"]), frames["epochs"][0], frames["epochs"][-1]) == (12, 0, 30)
    with (folder / "spectra.csv").open() as file:
        last = [float(row["sigma"]) for row in csv.DictReader(file) if row["epoch"] == "30"]
    assert frames["sigma"][-1] == pytest.approx(last[::2], rel=1e-3)


def test_the_spectra_of_a_layer_are_the_geometric_mean_over_seeds_of_its_own_rows(tmp_path, capsys):
    folders = [write_run(tmp_path, seed=seed, epochs=2, layers=3, spectra="all") for seed in range(2)]
    sigma = {}
    for folder in folders:
        with (folder / "spectra.csv").open() as file:
            for row in csv.DictReader(file):
                sigma.setdefault((row["layer"], row["epoch"], row["percentile"]), []).append(float(row["sigma"]))
    payload = payload_of(report(tmp_path))
    (group,) = payload["groups"]
    assert payload["experiments"][0]["spectra"] == ["layers.0", "layers.2", "layers.4"]
    for place, layer in enumerate(payload["experiments"][0]["spectra"]):
        last = [geometric_mean(seeds) for (name, epoch, _), seeds in sigma.items() if (name, epoch) == (layer, "2")]
        assert group["spectra"][str(place)]["sigma"][-1] == pytest.approx(last[::2], rel=1e-3)


def test_text_is_judged_by_its_loss_and_perplexity(tmp_path, capsys):
    for method, accuracy in (("none", 0.2), ("cmr", 0.5)):
        write_run(tmp_path, "prose", method, layers=1, target=(accuracy, 9.0), text=True)
    write_run(tmp_path, "digits", "none", layers=1)
    payload = payload_of(report(tmp_path))
    assert {one["name"]: one["headline"]["id"] for one in payload["experiments"]} == {
        "digits": "test_accuracy",
        "prose": "test_loss",
    }
    assert {"test_perplexity", "val_perplexity", "val_accuracy", "lr"} <= {one["id"] for one in payload["quantities"]}
    summary = (tmp_path / "report" / "summary.md").read_text()
    assert "| group | n | accuracy % | mean κ(W) |" in summary
    assert "| group | n | nats per character | validation nats | perplexity | accuracy % | mean κ(W) |" in summary
    assert "| group | epoch | train loss | nats per character | validation nats | grad norm |" in summary
    assert ",test_perplexity,log," in (tmp_path / "report" / "summary.csv").read_text()


def test_the_page_carries_kappa_by_kind_and_the_ends_of_tasks(tmp_path, capsys):
    write_transformer(tmp_path, "cmr")
    for seed in range(3):
        write_stream(tmp_path, "none", seed=seed, epochs=6)
    payload = payload_of(report(tmp_path))
    stream, transformer = sorted(payload["experiments"], key=lambda one: one["name"])
    assert transformer["kinds"] == [
        f"kappa of {kind}" for kind in ("attention q, k, v", "attention output", "MLP", "head")
    ]
    assert set(transformer["kinds"]) <= {one["id"] for one in payload["quantities"]}
    assert (stream["kinds"], stream["tasks"], transformer["tasks"]) == ([], True, False)
    assert stream["headline"] == {
        "id": "task_mean_test_accuracy",
        "label": "test accuracy, mean over tasks (%)",
        "log": False,
        "unit": " %",
    }
    group = payload["groups"][stream["groups"][0]]
    runs = [payload["runs"][i] for i in group["runs"]]
    assert group["tasks"]["epochs"] == [1, 2, 3]
    ends = [[run["curves"]["test_accuracy"][epoch] for epoch in (2, 4, 6)] for run in runs]
    assert [run["tasks"]["curves"]["test_accuracy"] for run in runs] == ends
    assert group["tasks"]["curves"]["test_accuracy"][0] == pytest.approx(np.mean(ends, axis=0), rel=1e-5)


def test_a_stream_of_tasks_is_judged_by_its_mean_first_against_last(tmp_path, capsys):
    folder = write_stream(tmp_path, "none", epochs=6)
    report(tmp_path)
    with (folder / "metrics.csv").open() as file:
        accuracy = [100 * float(row["test_accuracy"]) for row in csv.DictReader(file)]
    row = _table((tmp_path / "report" / "summary.md").read_text(), "stream")[0]
    shown = [float(row[name]) for name in ("mean of tasks %", "first task %", "last task %")]
    assert shown == pytest.approx([np.mean([accuracy[i] for i in (2, 4, 6)]), accuracy[2], accuracy[6]], abs=0.01)
