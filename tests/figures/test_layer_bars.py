"""cmr-analyze's drawing."""

import pandas as pd
import pytest

from cmr_runner.figures.layer_bars import layer_bars

TABLE = pd.DataFrame(
    {
        "layer": ["a", "b", "c"],
        "kappa": [2.0, 10.0, float("inf")],
        "sigma_max": [4.0, 5.0, 1.0],
        "sigma_min": [2, 0.5, 0],
    }
)


def test_bars_run_from_sigma_min_to_sigma_max_and_carry_kappa() -> None:
    (ax,) = layer_bars({"start": TABLE}).axes
    (bars,) = ax.collections
    ranges = [segment[:, 0].tolist() for segment in bars.get_segments()]
    assert ranges[:2] == [[2.0, 4.0], [0.5, 5.0]]
    assert ranges[2] == [pytest.approx(0.05), 1.0]  # σ_min = 0 has no place on the axis
    assert [label.get_text() for label in ax.get_yticklabels()] == ["a", "b", "c"]
    assert [text.get_text().strip() for text in ax.texts] == ["2", "10", "inf"]


def test_many_layers_show_some_of_their_names_and_no_numbers() -> None:
    many = pd.concat([TABLE] * 100, ignore_index=True)
    before, after = layer_bars({"before": TABLE, "after": many}).axes
    assert len(after.get_yticklabels()) <= 60
    assert not after.texts
    assert before.get_title(loc="left") == "before"
