import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from cmr_runner.regularizers import CMR, LayerRule, find_layers


class Mixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 8)
        self.attention = nn.MultiheadAttention(8, 2)
        self.norm = nn.LayerNorm([4, 8])
        self.conv = nn.Conv2d(3, 5, 3)
        self.head = nn.Linear(8, 3)
        self.score = nn.Linear(8, 1)
        self.tied = self.head
        self.frozen = nn.Linear(8, 8).requires_grad_(False)


def names(model: nn.Module, **rule: object) -> list[str]:
    return [layer.name for layer in find_layers(model, LayerRule(**rule))]  # type: ignore[arg-type]


def test_default_rule_takes_matrices_but_no_norms_embeddings_or_frozen_weights() -> None:
    assert names(Mixed()) == [
        "attention.in_proj_weight.q",
        "attention.in_proj_weight.k",
        "attention.in_proj_weight.v",
        "attention.out_proj.weight",
        "conv.weight",
        "head.weight",
    ]


def test_shapes_are_out_by_everything_else() -> None:
    shapes = {layer.name: layer.shape for layer in find_layers(Mixed(), LayerRule())}
    assert shapes["conv.weight"] == (5, 27)
    assert shapes["attention.in_proj_weight.k"] == (8, 8)


def test_rule_selects_by_name_type_and_size() -> None:
    assert names(Mixed(), include=["*head*", "conv*"]) == ["conv.weight", "head.weight"]
    assert names(Mixed(), exclude=["attention*"]) == ["conv.weight", "head.weight"]
    assert names(Mixed(), types=["Conv2d"]) == ["conv.weight"]
    assert names(Mixed(), types=["Embedding"]) == ["embed.weight"]
    assert names(Mixed(), min_side=4, exclude=["attention*"]) == ["conv.weight"]
    assert "score.weight" in names(Mixed(), min_side=1)


def test_rule_refuses_a_bare_string_and_a_senseless_size() -> None:
    with pytest.raises(ValueError, match=r"regularizer.layers.include must be a list"):
        LayerRule(include="head*")
    with pytest.raises(ValueError, match=r"regularizer.layers.min_side must be an integer >= 1, got 0"):
        LayerRule(min_side=0)


def test_a_rule_that_admits_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match=r"regularizer.layers must be a rule that admits at least one weight"):
        CMR(Mixed(), layers=LayerRule(include=["nothing*"]))


def test_part_of_a_fused_weight_gets_gradient_alone() -> None:
    model = nn.MultiheadAttention(8, 2)
    cmr = CMR(model, mixing="uncapped", layers=LayerRule(include=["*.k"]), engine="exact")
    cmr.add_gradients()
    q, k, v = model.in_proj_weight.grad.chunk(3)
    assert float(k.abs().sum()) > 0
    assert float(q.abs().sum()) == float(v.abs().sum()) == 0.0


def test_reading_a_spectrally_normalised_weight_does_not_advance_it() -> None:
    layer = parametrizations.spectral_norm(nn.Linear(6, 5))
    before = layer.state_dict()["parametrizations.weight.0._u"].clone()
    (found,) = find_layers(layer, LayerRule())
    found.matrix()
    assert torch.equal(layer.state_dict()["parametrizations.weight.0._u"], before)
    assert layer.training
    assert layer.parametrizations.weight[0].training
    assert found.name == "weight"
