"""Facts that modules and configs tell without running."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from planc.model.building.builder import build_manifest, build_model
from planc.model.building.facts import module_facts
from planc.model.building.quantization import quantization
from planc.model.manifest import Attention, Experts, ManifestFile, ModuleEntry, Quantization


def manifest(model_type: str, **config: Any) -> ManifestFile:
    return build_manifest(build_model(model_type, config=config), model_type, trace=False)


def entries(file: ManifestFile, name: str) -> list[ModuleEntry]:
    found = [entry for entry in file.modules if entry.name == name]
    assert found, f"no {name}"
    return found


@pytest.mark.parametrize(
    "model_type, name, heads, key_value_heads, head_dim",
    [
        ("qwen3_moe", "model.layers.*.self_attn", 32, 4, 64),
        ("llama", "model.layers.*.self_attn", 32, 32, 128),
        ("deepseek_v3", "model.layers.*.self_attn", 128, 128, 192),  # MLA: 128 without and 64 with positions
        ("gpt_oss", "model.layers.*.self_attn", 64, 8, 64),
        ("qwen2_5_vl", "model.visual.blocks.*.attn", 16, 16, 224),
    ],
)
def test_attention(model_type: str, name: str, heads: int, key_value_heads: int, head_dim: int) -> None:
    expected = Attention(num_heads=heads, num_key_value_heads=key_value_heads, head_dim=head_dim)
    assert {entry.attention for entry in entries(manifest(model_type), name)} == {expected}


def test_only_full_attention_layers_of_a_hybrid_have_heads() -> None:
    file = manifest("qwen3_5_moe_text")
    (attention,) = entries(file, "model.layers.*.self_attn")
    assert attention.attention == Attention(num_heads=16, num_key_value_heads=2, head_dim=256)
    assert {entry.name for entry in file.modules if entry.attention} == {attention.name}


def test_state_space_mixers_have_no_attention_heads() -> None:
    assert not any(entry.attention for entry in manifest("mamba2").modules)


@pytest.mark.parametrize(
    "model_type, name, count, routed",
    [
        ("qwen3_moe", "model.layers.*.mlp.experts", 128, True),
        ("gpt_oss", "model.layers.*.mlp.experts", 128, True),  # its arguments have defaults
        ("llama4_text", "model.layers.*.feed_forward.experts", 16, False),  # takes scaled tokens
        ("deepseek_v3", "model.layers.*.mlp.experts", 256, True),
    ],
)
def test_experts(model_type: str, name: str, count: int, routed: bool) -> None:
    file = manifest(model_type)
    assert {e.experts for e in entries(file, name)} == {Experts(num_experts=count, routed=routed)}
    assert {entry.name for entry in file.modules if entry.experts} == {name}


def test_experts_as_a_list_of_modules() -> None:
    parent = nn.Module()
    parent.num_experts = 4
    parent.list = nn.ModuleList(nn.Linear(1, 1) for _ in range(4))
    assert module_facts(parent.list, parent) == {"experts": Experts(num_experts=4, routed=False)}
    parent.num_experts = 5
    assert module_facts(parent.list, parent) == {}


def test_sizes_leave_layer_numbers_and_state_out() -> None:
    for entry in manifest("qwen3_moe").modules:
        assert not {"layer_idx", "training", "gradient_checkpointing"} & entry.sizes.keys()
    (linear,) = entries(manifest("llama"), "model.layers.*.self_attn.q_proj")
    assert linear.sizes == {"in_features": 4096, "out_features": 4096}


def test_names_that_stages_and_plans_refer_to() -> None:
    file = manifest("gpt2")
    assert (file.input_embeddings, file.output_embeddings, file.layers) == ("transformer.wte", "lm_head", None)
    # `n_head` is also known by its standard name.
    assert file.config["num_attention_heads"] == file.config["n_head"] == 12
    assert manifest("qwen3").layers == "model.layers"


def test_dtype_is_the_configs() -> None:
    file = manifest("qwen3", dtype="bfloat16")
    assert file.dtype == "bfloat16"
    assert {p.dtype for entry in file.modules for p in entry.parameters} == {"bfloat16"}
    nested = manifest("qwen3_vl", text_config={"dtype": "float16"})
    assert nested.dtype == "float16"


def test_config_holds_only_json() -> None:
    config = manifest("mamba2").config
    assert config["time_step_limit"] == [0.0, "inf"]
    assert "transformers_version" not in config


@pytest.mark.parametrize(
    "fields, expected",
    [
        (
            {"quant_method": "awq", "bits": 4, "group_size": 128, "modules_to_not_convert": ["lm_head"]},
            Quantization(method="awq", bits=4, group_size=128, not_converted=("lm_head",)),
        ),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, Quantization(method="gptq", bits=8)),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, Quantization(method="fp8", bits=8, group_size=128)),
        ({"quant_method": "fp8", "weight_block_size": [1, 128]}, Quantization(method="fp8", bits=8)),
        ({"quant_method": "mxfp4"}, Quantization(method="mxfp4", bits=4, group_size=32)),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, Quantization(method="bitsandbytes", bits=8)),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": {"weights": {"num_bits": 4, "group_size": 32}}},
                "ignore": ["re:.*gate$"],
            },
            Quantization(method="compressed-tensors", bits=4, group_size=32, not_converted=("re:.*gate$",)),
        ),
        ({"quant_method": "new", "bits": "many", "ignore": "all"}, Quantization(method="new")),
        ({}, None),
        (None, None),
    ],
)
def test_quantization(fields: dict[str, Any] | None, expected: Quantization | None) -> None:
    assert quantization(SimpleNamespace(quantization_config=fields)) == expected


def test_quantized_config_builds_whole_weights() -> None:
    awq = {"quant_method": "awq", "bits": 4, "group_size": 128}
    file = manifest("qwen2", intermediate_size=29568, num_hidden_layers=1, quantization_config=awq)
    assert file.quantization == Quantization(method="awq", bits=4, group_size=128)
    assert entries(file, "model.layers.*.mlp.down_proj")[0].parameters[0].shape == (4096, 29568)


def test_a_live_model_has_the_manifest_of_its_config() -> None:
    meta = build_model("qwen3", config={"num_hidden_layers": 1, "vocab_size": 64, "intermediate_size": 64})
    with torch.device("cpu"):
        live = type(meta)(meta.config)
    assert build_manifest(live, "live", trace=False) == build_manifest(meta, "live", trace=False)
