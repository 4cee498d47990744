"""What analyze says of a model."""

import copy

import pandas as pd
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from cmr_runner import analyze


def language_model() -> nn.Module:
    model = nn.ModuleDict(
        {"tokens": nn.Embedding(7, 4), "hidden": nn.Linear(4, 4), "head": nn.Linear(4, 7, bias=False)}
    )
    model["head"].weight = model["tokens"].weight
    with torch.no_grad():
        model["hidden"].weight.copy_(torch.diag(torch.tensor([8.0, 4.0, 2.0, 1.0])))
    return model


def test_print_begins_with_kappa_and_ends_with_what_is_left_out_and_why() -> None:
    lines = str(analyze(language_model())).splitlines()
    assert lines[0].split()[:6] == ["layer", "κ", "σ_max", "σ_min", "shape", "regularised"]
    assert lines[1].split()[:8] == ["hidden.weight", "8", "8", "1", "4", "×", "4", "yes"]
    assert lines[2] == (
        "2 weights were left out because: embedding (tokens.weight); tied to the embedding tokens.weight (head.weight)"
    )
    assert repr(analyze(language_model())) == "\n".join(lines)


def test_frozen_models_have_their_rows_and_say_so() -> None:
    model = language_model().requires_grad_(False)
    table = analyze(model)
    assert table["kappa"].tolist() == pytest.approx([8.0])
    assert "no: frozen" in str(table).splitlines()[1]
    assert "no: frozen" in table._repr_html_()


def test_it_is_a_data_frame_and_what_is_made_of_it_a_plain_one() -> None:
    table = analyze(language_model())
    assert isinstance(table, pd.DataFrame)
    assert type(table[["layer", "kappa"]]) is pd.DataFrame
    assert type(table.assign(more=1)) is pd.DataFrame


def test_a_model_without_layers_gives_an_empty_table_that_says_why() -> None:
    table = analyze(nn.Sequential(nn.Linear(4, 1)), K=3)
    assert table.empty
    assert list(table.columns)[-1] == "s_3"
    assert "short side 1 < min_side 2 (0.weight)" in str(table)


@pytest.mark.parametrize("conv", ["kernel", "operator"])
def test_it_leaves_a_spectrally_normalised_convolution_as_it_was(conv: str) -> None:
    model = parametrizations.spectral_norm(nn.Conv2d(3, 4, 3))
    before = copy.deepcopy(model.state_dict())
    analyze(model, conv=conv, conv_size=4)  # type: ignore[arg-type]
    assert model.training
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
