"""What the layer rule makes of the networks people train: every matrix of a layer, once, and nothing else."""

import re
from collections import Counter
from collections.abc import Iterator

import pytest
import torch
from torch import nn

from cmr_runner.data.torchvision_import import import_torchvision
from cmr_runner.regularizers import LayerRule
from cmr_runner.regularizers.layers import all_matrices

import_torchvision()  # timm and transformers import it too

BARE = "bare parameter, no layer's weight"
NO_LAYER = {
    *("class_token", "cls_token", "pos_embedding", "pos_embed", "layer_scale", "logit_scale"),
    "relative_position_bias_table",
}


def plan(model: nn.Module, **rule: object) -> dict[str, Counter[tuple[int, int]]]:
    """Names, numbers in them as N, with the shapes of their matrices, of all that is regularised."""
    found: dict[str, Counter[tuple[int, int]]] = {}
    for matrix in all_matrices(model, LayerRule(**rule)):  # type: ignore[arg-type]
        if not matrix.left_out:
            found.setdefault(re.sub(r"\d+", "N", matrix.name), Counter())[matrix.shape] += 1
    return found


def left_out(model: nn.Module) -> dict[str, str]:
    return {re.sub(r"\d+", "N", m.name): m.left_out for m in all_matrices(model, LayerRule()) if m.left_out}


@pytest.fixture
def on_no_device(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Networks without memory for their weights; RegNet computes its widths by tensors, which need some."""
    from torchvision.models.regnet import BlockParams

    widths = BlockParams.from_init_params

    def on_cpu(*arguments: object, **named: object) -> object:
        with torch.device("cpu"):
            return widths(*arguments, **named)

    monkeypatch.setattr(BlockParams, "from_init_params", on_cpu)
    with torch.device("meta"):
        yield


def expected_matrices(module: nn.Module) -> Counter[tuple[int, int]]:
    """The matrices of a torch layer, counted from its own arguments; none of a side below 2."""
    if isinstance(module, nn.MultiheadAttention):
        return Counter({(module.embed_dim, module.embed_dim): 3})
    if isinstance(module, nn.Conv2d):
        kernel = module.kernel_size[0] * module.kernel_size[1]
        shape = (module.out_channels // module.groups, module.in_channels // module.groups * kernel)
        return Counter({shape: module.groups} if min(shape) > 1 else {})
    if isinstance(module, nn.Linear):
        fused = 3 if module.out_features == 3 * module.in_features else 1
        shape = (module.out_features // fused, module.in_features)
        return Counter({shape: fused} if min(shape) > 1 else {})
    return Counter()


@pytest.mark.slow
@pytest.mark.usefixtures("on_no_device")
def test_all_of_torchvisions_classifiers_have_the_matrices_of_their_layers_and_no_others() -> None:
    from torchvision import models

    names = models.list_models(models)
    assert len(names) >= 80
    for name in names:
        model = models.get_model(name, weights=None, **({"init_weights": False} if "ception" in name else {}))
        matrices = all_matrices(model, LayerRule())
        found = Counter(matrix.shape for matrix in matrices if not matrix.left_out)
        assert found == sum((expected_matrices(module) for module in model.modules()), Counter()), name
        for matrix in matrices:
            kind = type(matrix.weight.module)
            if matrix.left_out == BARE:
                assert matrix.name.rpartition(".")[2] in NO_LAYER, (name, matrix.name)
            elif matrix.left_out:
                assert matrix.left_out == "short side 1 < min_side 2", (name, matrix.name)
                assert kind is nn.Conv2d, (name, matrix.name)
            else:
                assert issubclass(kind, nn.Linear | nn.Conv2d | nn.MultiheadAttention), (name, matrix.name)


@pytest.mark.usefixtures("on_no_device")
def test_plan_of_torchvisions_vit_swin_and_resnext() -> None:
    from torchvision import models

    vit = plan(models.vit_b_16())
    assert vit["encoder.layers.encoder_layer_N.self_attention.in_proj_weight.q"] == {(768, 768): 12}
    assert vit["encoder.layers.encoder_layer_N.mlp.N.weight"] == {(3072, 768): 12, (768, 3072): 12}
    assert vit["conv_proj.weight"] == {(768, 768): 1}
    assert len(vit) == 7
    assert plan(models.swin_t())["features.N.N.attn.qkv.weight.v"][96, 96] == 2
    assert plan(models.resnext50_32x4d())["layerN.N.convN.weight.gN"][4, 36] == 3 * 32
    assert left_out(models.swin_t()) == {"features.N.N.attn.relative_position_bias_table": BARE}


def square(width: int, count: int) -> dict[tuple[int, int], int]:
    return {(width, width): count}


def test_plans_of_five_timm_families() -> None:
    timm = pytest.importorskip("timm")

    vit = timm.create_model("vit_tiny_patch16_224", depth=2, num_classes=10)
    assert plan(vit) == {
        "patch_embed.proj.weight": {(192, 768): 1},
        **{f"blocks.N.attn.qkv.weight.{part}": square(192, 2) for part in "qkv"},
        "blocks.N.attn.proj.weight": square(192, 2),
        "blocks.N.mlp.fcN.weight": {(768, 192): 2, (192, 768): 2},
        "head.weight": {(10, 192): 1},
    }
    assert left_out(vit) == {"cls_token": BARE, "pos_embed": BARE}
    assert plan(vit, heads=True)["blocks.N.attn.qkv.weight.k.hN"] == {(64, 192): 6}

    swin = timm.create_model("swin_tiny_patch4_window7_224", depths=(1, 1), num_heads=(3, 6), num_classes=10)
    assert plan(swin)["layers.N.blocks.N.attn.qkv.weight.q"] == {(96, 96): 1, (192, 192): 1}
    assert left_out(swin) == {"layers.N.blocks.N.attn.relative_position_bias_table": BARE}

    convnext = timm.create_model("convnext_atto", depths=(1, 1, 1, 1), dims=(8, 16, 24, 32), num_classes=10)
    assert plan(convnext)["stages.N.blocks.N.mlp.fcN.weight"][128, 32] == 1
    assert left_out(convnext) == {"stages.N.blocks.N.conv_dw.weight": "short side 1 < min_side 2"}

    efficientnet = timm.create_model("efficientnet_b0", num_classes=10)
    kinds = {name.rpartition(".")[0].rpartition(".")[2] for name in plan(efficientnet)}
    assert kinds == {"conv_stem", "conv_pw", "conv_pwl", "conv_reduce", "conv_expand", "conv_head", "classifier"}
    assert plan(efficientnet)["blocks.N.N.se.conv_reduce.weight"][8, 32] == 1
    assert left_out(efficientnet) == {"blocks.N.N.conv_dw.weight": "short side 1 < min_side 2"}

    mixer = timm.create_model("mixer_s32_224", num_classes=10)
    assert plan(mixer) == {
        "stem.proj.weight": {(512, 3072): 1},
        "blocks.N.mlp_tokens.fcN.weight": {(256, 49): 8, (49, 256): 8},
        "blocks.N.mlp_channels.fcN.weight": {(2048, 512): 8, (512, 2048): 8},
        "head.weight": {(10, 512): 1},
    }


def test_timms_head_first_projections_are_those_its_attention_uses() -> None:
    maxxvit = pytest.importorskip("timm.models.maxxvit")
    torch.manual_seed(0)
    attention = maxxvit.AttentionCl(8, dim_head=4, head_first=True, bias=False).eval()
    q, k, v = (matrix for matrix in all_matrices(attention, LayerRule()) if ".weight." in matrix.name)
    x = torch.randn(2, 5, 8)
    by_head = lambda layer: (x @ layer.matrix().mT).view(2, 5, 2, 4).transpose(1, 2)  # noqa: E731
    mixed = nn.functional.scaled_dot_product_attention(by_head(q), by_head(k), by_head(v))
    expected = attention.proj(mixed.transpose(1, 2).reshape(2, 5, 8))
    torch.testing.assert_close(attention(x), expected)


def test_plan_of_gpt2() -> None:
    transformers = pytest.importorskip("transformers")
    size = {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 50, "n_positions": 16}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**size, bos_token_id=0, eos_token_id=0))
    block = "transformer.h.N."
    assert plan(model) == {
        **{f"{block}attn.c_attn.weight.{part}": square(32, 2) for part in "qkv"},
        f"{block}attn.c_proj.weight": square(32, 2),
        f"{block}mlp.c_fc.weight": {(128, 32): 2},
        f"{block}mlp.c_proj.weight": {(32, 128): 2},
    }
    assert left_out(model) == {
        "transformer.wte.weight": "embedding",
        "transformer.wpe.weight": "embedding",
        "lm_head.weight": "tied to the embedding transformer.wte.weight",
    }
    assert plan(model, heads=True)[f"{block}attn.c_attn.weight.k.hN"] == {(8, 32): 8}


def test_plan_of_bert() -> None:
    transformers = pytest.importorskip("transformers")
    size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    model = transformers.BertForMaskedLM(transformers.BertConfig(**size, vocab_size=50))
    layer = "bert.encoder.layer.N."
    assert plan(model) == {
        **{f"{layer}attention.self.{part}.weight": square(32, 2) for part in ("query", "key", "value")},
        f"{layer}attention.output.dense.weight": square(32, 2),
        f"{layer}intermediate.dense.weight": {(64, 32): 2},
        f"{layer}output.dense.weight": {(32, 64): 2},
        "cls.predictions.transform.dense.weight": square(32, 1),
    }
    assert set(left_out(model).values()) == {
        "embedding",
        "tied to the embedding bert.embeddings.word_embeddings.weight",
    }
    assert plan(model, heads=True)[f"{layer}attention.self.query.weight.hN"] == {(8, 32): 8}


def test_plan_of_llama_with_and_without_lora() -> None:
    transformers = pytest.importorskip("transformers")
    peft = pytest.importorskip("peft")
    size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**size, intermediate_size=64, vocab_size=50))
    layer = "model.layers.N."
    assert plan(model) == {
        f"{layer}self_attn.q_proj.weight": square(32, 2),
        f"{layer}self_attn.k_proj.weight": {(16, 32): 2},
        f"{layer}self_attn.v_proj.weight": {(16, 32): 2},
        f"{layer}self_attn.o_proj.weight": square(32, 2),
        f"{layer}mlp.gate_proj.weight": {(64, 32): 2},
        f"{layer}mlp.up_proj.weight": {(64, 32): 2},
        f"{layer}mlp.down_proj.weight": {(32, 64): 2},
        "lm_head.weight": {(50, 32): 1},
    }
    assert left_out(model) == {"model.embed_tokens.weight": "embedding"}
    by_head = plan(model, heads=True)  # 4 heads of queries, 2 of keys and values, in 2 layers
    assert by_head[f"{layer}self_attn.q_proj.weight.hN"] == {(8, 32): 8}
    assert by_head[f"{layer}self_attn.k_proj.weight.hN"] == {(8, 32): 4}

    adapted = peft.get_peft_model(model, peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"]))
    factors = {name: why for name, why in left_out(adapted).items() if "lora" in name}
    assert set(factors.values()) == {"LoRA factor"}
    assert len(factors) == 4  # A and B of q_proj and of v_proj
    assert all(matrix.frozen for matrix in all_matrices(adapted, LayerRule()) if not matrix.left_out)
