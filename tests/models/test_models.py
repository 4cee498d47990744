import pytest
import torch
from torch import nn

from cmr_runner.models import CNN, MLP, ViT
from cmr_runner.regularizers import CMR, analyze


def test_mlp_is_the_papers_network() -> None:
    model = MLP((1, 28, 28), 10)
    shapes = [tuple(layer.weight.shape) for layer in model.layers]
    assert shapes == [(256, 784), *[(256, 256)] * 13, (10, 256)]
    assert isinstance(model.activation, nn.Tanh)


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 28, 28)])
@pytest.mark.parametrize("model_class", [MLP, CNN, ViT])
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
