import copy
from collections.abc import Collection
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from cmr_runner.checks import ArgumentError
from cmr_runner.regularizers import CMR, SRIP, AlmostIsometry, LayerRule, SigmaOne, SpectralPenalty, find_layers
from cmr_runner.regularizers.gradient_penalty import GradientPenalty
from cmr_runner.regularizers.layers import all_matrices


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


def left_out(model: nn.Module, **rule: object) -> dict[str, str]:
    matrices = all_matrices(model, LayerRule(**rule))  # type: ignore[arg-type]
    return {matrix.name: matrix.left_out for matrix in matrices if matrix.left_out}


def test_default_rule_takes_matrices_but_no_norms_or_embeddings_and_marks_frozen_ones() -> None:
    layers = find_layers(Mixed(), LayerRule())
    assert [layer.name for layer in layers if layer.frozen] == ["frozen.weight"]
    assert [layer.name for layer in layers if not layer.frozen] == [
        "attention.in_proj_weight.q",
        "attention.in_proj_weight.k",
        "attention.in_proj_weight.v",
        "attention.out_proj.weight",
        "conv.weight",
        "head.weight",
    ]
    assert left_out(Mixed()) == {
        "embed.weight": "embedding",
        "norm.weight": "norm",
        "norm.bias": "norm",
        "score.weight": "short side 1 < min_side 2",
    }


def test_shapes_are_out_by_everything_else() -> None:
    shapes = {layer.name: layer.shape for layer in find_layers(Mixed(), LayerRule())}
    assert shapes["conv.weight"] == (5, 27)
    assert shapes["attention.in_proj_weight.k"] == (8, 8)


def test_rule_selects_by_name_type_and_size() -> None:
    assert names(Mixed(), include=["*head*", "conv*"]) == ["conv.weight", "head.weight"]
    assert names(Mixed(), exclude=["attention*", "frozen*"]) == ["conv.weight", "head.weight"]
    assert names(Mixed(), types=["Conv2d"]) == ["conv.weight"]
    assert names(Mixed(), types=["Embedding"]) == ["embed.weight"]
    assert names(Mixed(), min_side=4, exclude=["attention*", "frozen*"]) == ["conv.weight"]
    assert "score.weight" in names(Mixed(), min_side=1)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"include": "head*"}, "include must be a list of patterns, not one string, got 'head*'"),
        ({"min_side": 0}, "min_side must be an integer >= 1, got 0"),
        ({"split": 3}, "split must map name patterns to numbers of parts, got 3"),
        ({"split": {"*": 0}}, "split['*'] must be a number of parts >= 1 or the rows of each, got 0"),
        ({"heads": 4}, "heads must be true, false or a map of name patterns to numbers of heads, got 4"),
        ({"heads": {"*": "4"}}, "heads['*'] must be an integer >= 1, got '4'"),
    ],
)
def test_rule_refuses_what_makes_no_sense_and_names_the_argument(keys: dict[str, object], message: str) -> None:
    with pytest.raises(ArgumentError) as error:
        LayerRule(**keys)  # type: ignore[arg-type]
    assert str(error.value) == message


def test_what_is_no_model_or_no_rule_is_refused_by_its_argument() -> None:
    with pytest.raises(ArgumentError, match=r"^model must be a torch.nn.Module, got 'resnet18'$"):
        CMR("resnet18")  # type: ignore[arg-type]
    with pytest.raises(
        ArgumentError, match=r"^layers must be a LayerRule, as LayerRule\(exclude=\[...\]\), got '\*head\*'$"
    ):
        CMR(nn.Linear(4, 4), layers="*head*")  # type: ignore[arg-type]


def test_a_model_without_layers_is_refused_with_the_reason_for_each_weight() -> None:
    model = nn.Sequential(nn.Embedding(7, 8), nn.LayerNorm([4, 8]), nn.Linear(8, 1))
    with pytest.raises(ArgumentError) as error:
        CMR(model)
    assert str(error.value) == (
        "layers: no layer to regularise: 4 weights were left out because: embedding (0.weight); "
        "norm (1.weight, 1.bias); short side 1 < min_side 2 (2.weight)"
    )
    with pytest.raises(ArgumentError, match="the model has no weight with at least two dimensions"):
        CMR(nn.BatchNorm1d(3))


class Tied(nn.Module):
    """A language model in small: a position parameter, and a head that shares the embedding's weight."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(7, 8)
        self.position = nn.Parameter(torch.randn(5, 8))
        self.hidden = nn.Linear(8, 8)
        self.head = nn.Linear(8, 7, bias=False)
        self.head.weight = self.tokens.weight


def test_tied_heads_bare_parameters_and_lora_factors_are_left_out() -> None:
    model = Tied()
    model.hidden.lora_A = nn.ModuleDict({"default": nn.Linear(8, 2, bias=False)})  # as PEFT keeps them
    model.hidden.lora_B = nn.Parameter(torch.zeros(8, 2))  # as loralib keeps them
    assert names(model) == ["hidden.weight"]
    assert left_out(model) == {
        "position": "bare parameter, no layer's weight",
        "tokens.weight": "embedding",
        "hidden.lora_A.default.weight": "LoRA factor",
        "hidden.lora_B": "LoRA factor",
        "head.weight": "tied to the embedding tokens.weight",
    }
    assert names(model, types=["Tied"]) == ["position"]


def test_a_weight_of_two_modules_counts_once() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    assert names(model) == ["0.weight"]
    assert left_out(model) == {"1.weight": "the same parameter as 0.weight"}


def test_patterns_need_not_name_the_prefixes_of_wrappers() -> None:
    model = nn.ModuleDict({"module": nn.ModuleDict({"_orig_mod": nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))})})
    assert names(model, include=["0.*"]) == ["module._orig_mod.0.weight"]
    assert names(model, exclude=["module._orig_mod.0.*"]) == ["module._orig_mod.1.weight"]
    compiled = torch.compile(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), backend="eager")
    assert names(compiled, include=["1.weight"]) == ["_orig_mod.1.weight"]


def test_a_weight_frozen_later_gets_no_gradient_and_an_unfrozen_one_does() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4))
    model[0].requires_grad_(False)
    cmr = CMR(model, mixing="uncapped", engine="exact")
    cmr.add_gradients()
    assert [p.weight.grad is None for p in model] == [True, False, False]
    model.zero_grad()
    model[0].requires_grad_(True)
    model[1].requires_grad_(False)
    cmr.add_gradients()
    assert [p.weight.grad is None for p in model] == [False, True, False]


def test_a_weight_frozen_between_two_evaluations_keeps_still() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    cmr = CMR(model, mixing="uncapped", engine="exact", every=3)
    cmr.add_gradients()
    model.zero_grad()
    model[0].requires_grad_(False)
    cmr.add_gradients()
    assert model[0].weight.grad is None
    assert float(model[1].weight.grad.norm()) > 0


def test_a_model_that_is_all_frozen_is_left_alone() -> None:
    model = nn.Sequential(nn.Linear(4, 4)).requires_grad_(False)
    cmr = CMR(model)
    cmr.add_gradients()
    assert model[0].weight.grad is None
    assert cmr.last is not None
    assert float(cmr.last.penalty) == 0


def test_a_replaced_layer_is_noticed_followed_and_said() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3))
    cmr = CMR(model, mixing="uncapped", engine="exact")
    old, model[1] = model[1], nn.Linear(4, 5)
    model(torch.randn(2, 4)).sum().backward()
    before = model[1].weight.grad.clone()
    with pytest.warns(UserWarning, match=r"^replaced since the regulariser was made, and followed: 1.weight$"):
        cmr.add_gradients()
    assert old.weight.grad is None
    assert not torch.equal(model[1].weight.grad, before)
    assert [row.shape for row in cmr.plan] == [(4, 4), (5, 4)]


def test_a_lazy_weight_and_deepspeed_are_refused_in_one_sentence() -> None:
    with pytest.raises(ArgumentError, match=r"^model has no shape for weight yet: run one forward first$"):
        CMR(nn.LazyLinear(4))
    partitioned = nn.Linear(4, 4)
    partitioned.weight.ds_id = 0  # what ZeRO puts on every parameter
    with pytest.raises(ArgumentError, match=r"^model is trained by DeepSpeed, which is not supported: "):
        CMR(partitioned)


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


# All that keep something of a group of layers from step to step.
KEEPERS = {
    **{engine: partial(CMR, engine=engine) for engine in ("fast", "stochastic")},
    "auto": partial(CMR, engine={"name": "auto", "turns": 1}),  # so that all layers of a shape are one group
    **{cls.__name__: partial(cls, lam=1.0) for cls in (SRIP, SigmaOne, SpectralPenalty, AlmostIsometry)},
}


def three_alike(trained: Collection[int]) -> nn.Sequential:
    torch.manual_seed(0)
    return train_only(nn.Sequential(*(nn.Linear(40, 40) for _ in range(3))), trained)


def train_only(model: nn.Sequential, trained: Collection[int]) -> nn.Sequential:
    for i, layer in enumerate(model):
        layer.requires_grad_(i in trained)
    return model


def added(penalty: GradientPenalty) -> list[Tensor | None]:
    penalty.model.zero_grad()
    penalty.add_gradients()
    return [layer.weight.grad for layer in penalty.model]


def added_by_a_fresh_one(keeper: str, model: nn.Module, step: int) -> list[Tensor | None]:
    fresh = KEEPERS[keeper](model, mixing="uncapped")
    fresh.step = step
    return added(fresh)


def same(found: list[Tensor | None], expected: list[Tensor | None]) -> bool:
    pairs = zip(found, expected, strict=True)
    return all(a is b if a is None or b is None else torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("then", [[1], [1, 2], [0, 1, 2]], ids=str)
@pytest.mark.parametrize("keeper", KEEPERS)
def test_layers_that_join_a_group_get_nothing_that_was_kept_of_others(keeper: str, then: list[int]) -> None:
    model = three_alike([0] if then == [1] else [0, 1])
    penalty = KEEPERS[keeper](model, mixing="uncapped")
    added(penalty)
    train_only(model, then)
    assert same(added(penalty), added_by_a_fresh_one(keeper, model, step=1))


@pytest.mark.parametrize("keeper", KEEPERS)
def test_a_layer_that_replaces_one_of_its_shape_gets_nothing_that_was_kept_of_it(keeper: str) -> None:
    model = three_alike([0, 1, 2])
    penalty = KEEPERS[keeper](model, mixing="uncapped")
    added(penalty)
    model[1] = nn.Linear(40, 40)
    with pytest.warns(UserWarning, match=r"^replaced since"):
        found = added(penalty)
    assert same(found, added_by_a_fresh_one(keeper, model, step=1))


@pytest.mark.parametrize("keeper", KEEPERS)
def test_a_state_that_was_kept_of_other_layers_is_not_used(keeper: str) -> None:
    """As where processes divide the layers, and one of them loads what another one saved."""
    other = KEEPERS[keeper](three_alike([0, 1]), mixing="uncapped")
    added(other)
    model = three_alike([1, 2])
    penalty = KEEPERS[keeper](model, mixing="uncapped")
    penalty.load_state_dict(copy.deepcopy(other.state_dict()))
    assert same(added(penalty), added_by_a_fresh_one(keeper, model, step=1))


@pytest.mark.parametrize("keeper", KEEPERS)
def test_a_state_that_does_not_name_its_layers_continues_bit_for_bit(keeper: str) -> None:
    straight, resumed = (KEEPERS[keeper](three_alike([0, 1]), mixing="uncapped") for _ in range(2))
    added(straight)
    state = copy.deepcopy(straight.state_dict())
    del state["members"]
    resumed.load_state_dict(state)
    assert same(added(resumed), added(straight))
