import pytest
import torch
from torch import nn

from cmr_runner.inits import orthogonal_
from cmr_runner.models import CNN, GPT, MLP, ResNet, ViT
from cmr_runner.regularizers import CMR, LayerRule, analyze


def test_mlp_is_the_papers_network() -> None:
    model = MLP((1, 28, 28), 10)
    shapes = [tuple(layer.weight.shape) for layer in model.layers]
    assert shapes == [(256, 784), *[(256, 256)] * 13, (10, 256)]
    assert isinstance(model.activation, nn.Tanh)


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 28, 28)])
@pytest.mark.parametrize("model_class", [MLP, CNN, ViT, ResNet])
def test_every_model_maps_images_to_logits_and_takes_the_penalty(model_class: type, shape: tuple[int, ...]) -> None:
    model = model_class(shape, 7)
    logits = model(torch.randn(5, *shape))
    assert logits.shape == (5, 7)
    CMR(model, mixing="uncapped").add_gradients()
    regularised = [p.grad is not None for p in model.parameters()]
    assert sum(regularised) >= 4


def test_transformer_layers_are_its_matrices_with_attention_split() -> None:
    model = ViT((1, 8, 8), 10, depth=1, width=16, heads=2)
    assert analyze(model)["layer"].tolist() == [
        "embedding.weight",
        *[f"encoder.layers.0.self_attn.in_proj_weight.{part}" for part in "qkv"],
        "encoder.layers.0.self_attn.out_proj.weight",
        "encoder.layers.0.linear1.weight",
        "encoder.layers.0.linear2.weight",
        "head.weight",
    ]


def test_transformer_sees_where_a_patch_is() -> None:
    model = ViT((1, 8, 8), 10, depth=1, width=16, heads=2).eval()
    with torch.no_grad():
        model.position.normal_()
        image = torch.randn(1, 1, 8, 8)
        assert not torch.allclose(model(image), model(image.flip(-1)), atol=1e-4)


@pytest.mark.parametrize(
    ("model_class", "shape", "keys", "message"),
    [
        (MLP, (64,), {"depth": 0}, r"^depth must be an integer in \[1, 4096\], got 0"),
        (MLP, (64,), {"width": 0}, r"^width must be an integer in \[1, 65536\], got 0"),
        (MLP, (64,), {"depth": 10**9}, r"^depth must be an integer in \[1, 4096\], got 1000000000"),
        (MLP, (64,), {"bias": "no"}, "^bias must be true or false, got 'no'"),
        (MLP, (64,), {"activation": "sin"}, "^activation must be one of tanh, .* got 'sin'"),
        (CNN, (64,), {}, r"^it needs images \(channels, height, width\), the data set has \(64,\)"),
        (CNN, (1, 8, 8), {"channels": []}, r"^channels must be a list of at least one size, got \[\]"),
        (ViT, (64,), {}, "^it needs images"),
        (ResNet, (3, 8, 8), {"depth": 10}, r"^depth must be 6 n \+ 2 for some n >= 1, as 8, 14, 20, got 10"),
        (ResNet, (3, 8, 8), {"norm": "layer"}, "^norm must be one of batch, none, got 'layer'"),
        (GPT, (3, 8, 8), {}, r"^it needs text \(context,\), the data set has \(3, 8, 8\)"),
        (GPT, (16,), {"heads": 7}, "^heads must be a divisor of width, 128, got 7"),
        (ViT, (1, 8, 8), {"patch": 3}, "^patch must be a divisor of the image, 8 × 8, got 3"),
        (ViT, (1, 8, 8), {"heads": 5}, "^heads must be a divisor of width, 64, got 5"),
        (ViT, (1, 8, 8), {"dropout": 1}, r"^dropout must be in \[0, 1\), got 1"),
    ],
)
def test_senseless_settings_are_refused(
    model_class: type, shape: tuple[int, ...], keys: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        model_class(shape, 10, **keys)


@pytest.mark.parametrize(("depth", "norm", "skips"), [(8, "batch", True), (14, "none", False), (20, "none", True)])
def test_resnet_has_as_many_layers_as_its_depth(depth: int, norm: str, skips: bool) -> None:
    model = ResNet((3, 32, 32), 10, depth=depth, width=4, norm=norm, skips=skips)  # type: ignore[arg-type]
    layers = [m for m in model.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    assert len(layers) == depth
    assert any(isinstance(m, nn.BatchNorm2d) for m in model.modules()) == (norm == "batch")
    assert model.blocks(torch.zeros(1, 4, 32, 32)).shape == (1, 16, 8, 8)


def test_a_block_whose_convolutions_are_zero_passes_its_input_on_by_the_skip_alone() -> None:
    for skips in (True, False):
        block = ResNet((3, 8, 8), 10, depth=8, width=4, norm="none", skips=skips).blocks[1]
        nn.init.zeros_(block.conv2.weight)
        nn.init.zeros_(block.conv2.bias)
        x = torch.rand(2, 4, 8, 8)
        z = block(x)
        assert z.shape == (2, 8, 4, 4)
        assert torch.equal(z[:, :4], x[:, :, ::2, ::2] if skips else torch.zeros(2, 4, 4, 4))
        assert not z[:, 4:].any()


@pytest.mark.parametrize("training", [True, False])
def test_gpt_sees_the_past_alone(training: bool) -> None:
    torch.manual_seed(0)
    model = GPT((8,), 11, depth=2, width=16, heads=2).train(training)
    tokens = torch.randint(11, (1, 8))
    other = tokens.clone()
    other[0, 5] = (other[0, 5] + 1) % 11
    with torch.no_grad():
        a, b = model(tokens), model(other)
    assert a.shape == (1, 8, 11)
    torch.testing.assert_close(a[:, :5], b[:, :5])
    assert not torch.allclose(a[:, 5:], b[:, 5:])


def test_a_tied_head_is_the_embedding_and_neither_regularised_nor_initialised_as_a_matrix() -> None:
    tied, free = (GPT((8,), 11, depth=1, width=16, heads=2, tied=tied) for tied in (True, False))
    assert tied.head.weight is tied.embedding.weight
    names = [set(analyze(model)["layer"]) for model in (tied, free)]
    assert names[1] - names[0] == {"head.weight"}
    assert "embedding.weight" not in names[1]
    before = tied.embedding.weight.detach().clone()
    orthogonal_(tied, torch.Generator().manual_seed(0))
    assert torch.equal(tied.embedding.weight, before)


def test_heads_of_gpt_can_be_regularised_apart() -> None:
    model = GPT((8,), 11, depth=1, width=16, heads=2)
    names = analyze(model, layers=LayerRule(heads=True))["layer"].tolist()
    attention = "encoder.layers.0.self_attn.in_proj_weight"
    assert [name for name in names if name.startswith(attention)] == [
        f"{attention}.{part}.h{head}" for part in "qkv" for head in (0, 1)
    ]
