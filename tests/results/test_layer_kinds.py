"""Layers by kind: their names, their κ, and the order in which maps show them."""

import numpy as np
import pytest
from synthetic_runs import write_run

from cmr_runner.results.grouping import group_runs
from cmr_runner.results.layer_columns import heads_note, layer_names, short_name
from cmr_runner.results.layer_kinds import kind_of
from cmr_runner.results.quantities import kind_quantities
from cmr_runner.results.reading import find_runs

from .beyond_runs import REST, WHOLE, write_transformer


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("encoder.layers.3.self_attn.in_proj_weight.q", "attention q, k, v"),
        ("encoder.layers.3.self_attn.in_proj_weight.v.h11", "attention q, k, v by head"),
        ("encoder.layers.3.self_attn.out_proj.weight", "attention output"),
        ("encoder.layers.3.linear2.weight", "MLP"),
        ("first.weight", "convolution"),
        ("blocks.0.conv1.weight", "convolution"),
        ("convolutions.2.weight", "convolution"),
        ("embedding.weight", "embedding"),
        ("head.weight", "head"),
        ("layers.4.weight", "square"),
    ],
)
def test_a_layers_name_tells_its_kind(name, kind):
    assert kind_of(name, square=True) == kind


def test_a_name_that_tells_nothing_leaves_the_shape():
    assert kind_of("layers.0.weight", square=False) == "not square"


def test_kappa_of_a_kind_is_the_mean_over_its_layers(tmp_path):
    write_transformer(tmp_path, "cmr")
    (run,), _ = find_runs([tmp_path])
    table = run.layers
    for quantity in kind_quantities([run]):
        members = {"attention q, k, v": WHOLE, "attention output": REST[:1], "MLP": REST[1:3], "head": REST[3:]}
        rows = np.isin(table["layer"], members[quantity.kind]) & (table["epoch"] == 5)
        assert quantity.values(run)[5] == pytest.approx(table["kappa"][rows].mean())


def test_layers_of_one_kind_are_not_told_apart(tmp_path):
    write_run(tmp_path, layers=3)
    assert kind_quantities(find_runs([tmp_path])[0]) == []


def test_what_only_some_runs_have_stands_where_it_does_in_theirs(tmp_path):
    write_transformer(tmp_path, "none")
    write_transformer(tmp_path, "cmr_by_head", by_head=True)
    groups = group_runs(find_runs([tmp_path])[0])
    names = [short_name(name) for name in layer_names(groups)]
    heads = [f"block 0.attn.{part}.h{i}" for part in "qkv" for i in range(2)]
    whole = [f"block 0.attn.{part}" for part in "qkv"]
    rest = ["block 0.attn.out_proj", "block 0.linear1", "block 0.linear2", "head"]
    assert names == [*heads, *whole, *rest]
    assert heads_note(groups)
    assert not heads_note(groups[:1])
