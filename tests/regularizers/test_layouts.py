"""Fused weights: each matrix they hold is found, and gradients go back to where it lies."""

import pytest
import torch
from torch import Tensor, nn

from cmr_runner.checks import ArgumentError
from cmr_runner.regularizers import CMR, LayerRule, find_layers
from cmr_runner.spectral import PenaltySpec
from cmr_runner.spectral.penalty import exact_penalty


class Conv1D(nn.Module):
    """Hugging Face's, by class name: x @ weight + bias."""

    def __init__(self, n_out: int, n_in: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n_in, n_out))


class Attention(nn.Module):
    """The names of timm's and of GPT-2's attention."""

    def __init__(self, head_first: bool = False) -> None:
        super().__init__()
        self.num_heads, self.head_dim, self.head_first = 2, 3, head_first
        self.qkv = nn.Linear(6, 18)
        self.c_attn = Conv1D(18, 6)
        self.proj = nn.Linear(6, 6)


def shapes(model: nn.Module, **rule: object) -> dict[str, tuple[int, int]]:
    return {layer.name: layer.shape for layer in find_layers(model, LayerRule(**rule))}  # type: ignore[arg-type]


def matrix(model: nn.Module, name: str, **rule: object) -> Tensor:
    (layer,) = [layer for layer in find_layers(model, LayerRule(**rule)) if layer.name == name]  # type: ignore[arg-type]
    return layer.matrix()


def test_projections_of_timm_and_gpt2_are_split_along_the_output_side() -> None:
    model = Attention()
    square = dict.fromkeys(["qkv.weight.q", "qkv.weight.k", "qkv.weight.v"], (6, 6))
    transposed = dict.fromkeys(["c_attn.weight.q", "c_attn.weight.k", "c_attn.weight.v"], (6, 6))
    assert shapes(model) == square | transposed | {"proj.weight": (6, 6)}
    assert torch.equal(matrix(model, "qkv.weight.k"), model.qkv.weight[6:12])
    assert torch.equal(matrix(model, "c_attn.weight.k"), model.c_attn.weight[:, 6:12].mT)


def test_head_first_projections_are_put_together_from_their_heads() -> None:
    model = Attention(head_first=True)  # rows: q, k, v of head 0, then of head 1, each of 3 rows
    expected = model.qkv.weight.view(2, 3, 3, 6)[:, 1].reshape(6, 6)
    assert torch.equal(matrix(model, "qkv.weight.k"), expected)
    assert torch.equal(matrix(model, "qkv.weight.k.h1", heads=True), model.qkv.weight[12:15])


def test_heads_are_split_where_asked() -> None:
    by_head = shapes(Attention(), heads=True)
    assert [name for name in by_head if name.startswith("qkv")] == [
        f"qkv.weight.{part}.h{head}" for part in "qkv" for head in (0, 1)
    ]
    assert by_head["c_attn.weight.v.h1"] == (3, 6)
    assert by_head["proj.weight"] == (6, 6)  # no q, k or v
    assert shapes(nn.MultiheadAttention(8, 4), heads=True)["in_proj_weight.q.h3"] == (2, 8)
    given = shapes(Attention(), heads={"proj.*": 3})
    assert [name for name in given if ".h" in name] == ["proj.weight.h0", "proj.weight.h1", "proj.weight.h2"]


def test_a_split_can_be_given_by_number_by_sizes_or_undone() -> None:
    model = nn.Sequential(nn.Linear(5, 12))
    assert shapes(model, split={"0.weight": 3}) == {f"0.weight.{i}": (4, 5) for i in range(3)}
    assert shapes(model, split={"*": [8, 2, 2]}) == {"0.weight.0": (8, 5), "0.weight.1": (2, 5), "0.weight.2": (2, 5)}
    assert shapes(nn.MultiheadAttention(8, 4), split={"in_proj*": 1})["in_proj_weight"] == (24, 8)
    with pytest.raises(ArgumentError, match=r"^layers.split must divide the 12 rows of 0.weight, got 5$"):
        shapes(model, split={"*": 5})
    with pytest.raises(ArgumentError, match=r"^layers.split must add up to the 12 rows of 0.weight, got \[8, 2\]$"):
        shapes(model, split={"*": [8, 2]})
    with pytest.raises(ArgumentError, match=r"^layers.heads must divide the 12 rows of 0.weight, got 5$"):
        shapes(model, heads={"*": 5})
    attention = Attention()
    attention.head_dim = 20
    with pytest.raises(
        ArgumentError, match=r"^layers.heads must fit the 6 rows of qkv.weight.q, got heads of 20 rows$"
    ):
        shapes(attention, heads=True)


def test_gates_of_recurrent_layers_are_matrices_of_their_own() -> None:
    lstm = shapes(nn.LSTM(5, 4, proj_size=2))
    assert {name: shape for name, shape in lstm.items() if "ih" in name} == {
        f"weight_ih_l0.{gate}": (4, 5) for gate in "ifgo"
    }
    assert lstm["weight_hh_l0.o"] == (4, 2)
    assert lstm["weight_hr_l0"] == (2, 4)
    assert [name for name in shapes(nn.GRU(5, 4, bidirectional=True)) if "hh" in name] == [
        f"weight_hh_l0{direction}.{gate}" for direction in ("", "_reverse") for gate in "rzn"
    ]
    assert shapes(nn.GRUCell(5, 4))["weight_ih.n"] == (4, 5)
    assert shapes(nn.RNN(5, 4)) == {"weight_ih_l0": (4, 5), "weight_hh_l0": (4, 4)}


def test_grouped_convolutions_are_one_matrix_per_group_and_depthwise_ones_too_small() -> None:
    assert shapes(nn.Conv2d(8, 12, 3, groups=4)) == {f"weight.g{i}": (3, 18) for i in range(4)}
    assert shapes(nn.Conv2d(8, 8, 3, groups=8)) == {}
    assert shapes(nn.ConvTranspose2d(8, 12, 3, groups=4)) == {f"weight.g{i}": (2, 27) for i in range(4)}


@pytest.mark.parametrize(
    ("model", "rule"),
    [
        (Attention(), LayerRule()),
        (Attention(head_first=True), LayerRule()),
        (Attention(), LayerRule(heads=True)),
        (nn.LSTM(5, 4), LayerRule()),
        (nn.Conv2d(8, 12, 3, groups=4), LayerRule()),
        (nn.Linear(5, 12), LayerRule(split={"weight": [7, 5]})),
    ],
    ids=["projections", "head first", "heads", "gates", "groups", "sizes"],
)
def test_gradients_are_those_of_each_matrix_where_it_lies(model: nn.Module, rule: LayerRule) -> None:
    model = model.double()
    cmr = CMR(model, lam=1.0, mixing="uncapped", engine="exact", layers=rule)
    cmr.add_gradients()
    for layer in cmr.layers:
        (parameter,) = layer.weight.parameters
        found = layer.weight.matrices(parameter.grad)[layer.index]
        torch.testing.assert_close(found, exact_penalty(layer.matrix(), PenaltySpec()).gradient)
    assert all(p.grad is None for p in model.parameters() if p.ndim == 1)
