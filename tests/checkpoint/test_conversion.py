"""Checkpoints in the form that transformers saves and the one that its classes hold, converted region by region."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers.core_model_loading import ConversionOps, WeightConverter

from planc.model.building.builder import build_model
from planc.program.placements import whole
from planc.runtime.checkpoint.conversion import Evaluated, _convert
from planc.runtime.checkpoint.converted import ConvertedSource, converted, may_be_surplus
from planc.runtime.errors import CheckpointError
from planc.runtime.loading import load_weights
from planc.runtime.sources import RandomWeights, SafetensorsFolder
from tests.checkpoint.support import copy_of, picked, regions
from tests.runtime.models import build

# Small models by hand, and copies of types whose converters do something of their own: parts cut apart (hrm_text),
# transposed experts (qwen3_vl_moe), interleaved ones (inkling2_text), projections permuted for RoPE (mistral_large4),
# fused attention of an encoder (gte).
BY_HAND = ("llama", "llama-tied-biased", "qwen3_moe", "mixtral", "deepseek_v3", "gpt_oss", "phi3")
COPIES = ("hrm_text", "qwen3_vl_moe", "inkling2_text", "mistral_large4", "gte")


@pytest.mark.parametrize("name", [*BY_HAND, *COPIES])
def test_regions_are_those_of_what_transformers_loads(name: str, tmp_path: Path) -> None:
    model = build(name) if name in BY_HAND else copy_of(name)
    model.save_pretrained(tmp_path)
    expected = type(model).from_pretrained(tmp_path).state_dict()
    stored = SafetensorsFolder(tmp_path)
    source = converted(model, stored)
    assert source.unexpected == ()
    compared = 0
    for key, tensor in expected.items():
        assert source.shape(key) == tuple(tensor.shape)
        assert torch.equal(source.read(key, whole(tuple(tensor.shape))), tensor), key
        for region in regions(tuple(tensor.shape)):
            before = stored.bytes_read
            assert torch.equal(source.read(key, region), picked(tensor, region)), (key, region)
            assert stored.bytes_read - before == region.count * tensor.element_size(), (key, region)
            compared += 1
    assert compared > len(expected)


def per_expert(folder: Path) -> dict[str, torch.Tensor]:
    """A checkpoint of a mixture of experts, one tensor an expert; what is in it."""
    build("qwen3_moe").save_pretrained(folder)
    return load_file(folder / "model.safetensors")


def meta_source(folder: Path) -> ConvertedSource:
    return converted(build_model(str(folder)), SafetensorsFolder(folder))


def test_a_missing_expert_is_named(tmp_path: Path) -> None:
    tensors = per_expert(tmp_path)
    del tensors["model.layers.1.mlp.experts.5.up_proj.weight"]
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"needs the tensor `model.layers.1.mlp.experts.5.up_proj.weight`"):
        meta_source(tmp_path)


def test_experts_that_all_lack_one_number(tmp_path: Path) -> None:
    tensors = per_expert(tmp_path)
    last = {key: t for key, t in tensors.items() if ".experts.7." not in key}
    save_file(last, tmp_path / "model.safetensors")
    source = meta_source(tmp_path)
    with pytest.raises(
        CheckpointError, match=r"gate_up_proj`, made of .* has shape \[7, 32, 32\], the model \[8, 32, 32\]"
    ):
        load_weights(build_model(str(tmp_path)), source, torch.device("cpu"))


def test_an_expert_of_another_shape_is_named(tmp_path: Path) -> None:
    tensors = per_expert(tmp_path)
    tensors["model.layers.0.mlp.experts.3.down_proj.weight"] = torch.ones(32, 15)
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"down_proj` can't be made of `model.layers.0.mlp.experts.0.down_proj"):
        meta_source(tmp_path)


def test_renamed_keys_of_old_checkpoints(tmp_path: Path) -> None:
    build("llama").save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    old = {key.removeprefix("model."): tensor for key, tensor in tensors.items()}
    save_file(old, tmp_path / "model.safetensors")
    theirs = transformers.LlamaForCausalLM.from_pretrained(tmp_path).state_dict()
    source = meta_source(tmp_path)
    assert all(torch.equal(source.read(key, whole(tuple(t.shape))), t) for key, t in theirs.items())


def test_either_name_of_tied_weights_will_do(tmp_path: Path) -> None:
    model = build("llama-tied-biased")
    model.save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["lm_head.weight"] = tensors.pop("model.embed_tokens.weight")
    save_file(tensors, tmp_path / "model.safetensors")
    made = build_model(str(tmp_path))
    load_weights(made, converted(made, SafetensorsFolder(tmp_path)), torch.device("cpu"))
    assert made.get_parameter("lm_head.weight") is made.get_parameter("model.embed_tokens.weight")
    assert torch.equal(made.get_parameter("lm_head.weight"), model.lm_head.weight)


def test_tied_weights_that_differ_are_refused(tmp_path: Path) -> None:
    build("llama-tied-biased").save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"] + 1
    save_file(tensors, tmp_path / "model.safetensors")
    made = build_model(str(tmp_path))
    with pytest.raises(
        CheckpointError, match=r"`lm_head.weight` differs from .*`model.embed_tokens.weight`, but the model"
    ):
        load_weights(made, converted(made, SafetensorsFolder(tmp_path)), torch.device("cpu"))


def test_random_weights_are_tied() -> None:
    source = RandomWeights({"a": (3, 2), "b": (3, 2)}, ties={"b": "a"})
    assert torch.equal(source.read("a", whole((3, 2))), source.read("b", whole((3, 2))))
    assert source.where("a") == source.where("b")


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn, torch.int32])
def test_quantised_weights_are_not_cast(dtype: torch.dtype, tmp_path: Path) -> None:
    build("llama").save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["model.norm.weight"] = torch.ones(32).to(dtype)
    save_file(tensors, tmp_path / "model.safetensors")
    made = build_model(str(tmp_path))
    with pytest.raises(CheckpointError, match=r"`model.norm.weight` holds .*, the model float32: quantised"):
        load_weights(made, converted(made, SafetensorsFolder(tmp_path)), torch.device("cpu"))


def test_surplus_tensors_are_told_by_their_own_names(tmp_path: Path) -> None:
    tensors = per_expert(tmp_path)
    tensors["model.layers.0.mlp.experts.0.gate_proj.weight_scale"] = torch.ones(1)
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(4)
    save_file(tensors, tmp_path / "model.safetensors")
    made = build_model(str(tmp_path))
    loaded = load_weights(made, converted(made, SafetensorsFolder(tmp_path)), torch.device("cpu"))
    assert loaded.unexpected == ("model.layers.0.mlp.experts.0.gate_proj.weight_scale",)
    assert may_be_surplus(made, "model.layers.0.self_attn.rotary_emb.inv_freq")


class Doubled(ConversionOps):  # type: ignore[misc]
    """An operation that computes something: it can't be followed."""

    def convert(
        self, input_dict: dict[str, Any], source_patterns: list[str], target_patterns: list[str], **_: Any
    ) -> Any:
        return {target_patterns[0]: torch.cat([tensor * 2 for tensors in input_dict.values() for tensor in tensors])}


def test_what_cant_be_followed_is_made_whole() -> None:
    mapping = WeightConverter(["old.*.weight"], ["new.weight"], [Doubled()])
    names = ["old.0.weight", "old.1.weight"]
    stored = dict.fromkeys(names, ((3, 4), torch.bfloat16))
    like = torch.empty(6, 4, dtype=torch.float32)
    model = build("llama")
    found = _convert("new.weight", mapping, {"old.*.weight": names}, model, stored, {"new.weight": like})
    made = found["new.weight"]
    assert isinstance(made.expression, Evaluated)
    assert made.shape == (6, 4)
    values = {name: torch.randn(3, 4).bfloat16() for name in names}
    expected = torch.cat([values[name].float() * 2 for name in names])
    for region in regions((6, 4)):
        found_region = made.expression.read(region, lambda name, r: picked(values[name], r))
        assert torch.equal(found_region, picked(expected, region))
