"""A manifest says what the torch model says, for every model type of transformers that carries a plan."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from torch import nn
from transformers.distributed import DistributedConfig

from planc.model.building.builder import build_manifest, build_model
from planc.model.errors import ModelError
from planc.model.manifest import Manifest
from planc.syntax.matching import generic_name
from tests.models import model_types_with_a_plan

# Default configs that transformers 5.24.0 can't build, with what it says (gemma3n needs a package that planc doesn't).
NOT_BUILDABLE = json.loads((Path(__file__).parent / "not_buildable.json").read_text())


def differences(model: nn.Module, manifest: Manifest, path: Path) -> Iterator[str]:
    modules = dict(model.named_modules())
    parameters = {
        f"{name}.{own}" if name else own: parameter
        for name, module in modules.items()
        for own, parameter in module.named_parameters(recurse=False)
    }
    if list(manifest.modules) != list(modules):
        yield "names or order of modules"
    if list(manifest.parameters) != list(parameters):
        yield "names or order of parameters"
        return
    for name, module in modules.items():
        if manifest.modules[name].entry.class_name != type(module).__name__:
            yield f"class of {name}"
    for name, (owner, entry) in manifest.parameters.items():
        if entry.shape != tuple(parameters[name].shape):
            yield f"shape of {name}"
        if name not in owner.parameters:
            yield f"owner of {name}"
    first = {id(p): name for name, p in reversed(parameters.items())}
    shared = {name for name, p in parameters.items() if first[id(p)] != name}
    if not shared <= {name for tie in manifest.file.ties for name in tie}:
        yield "shared tensors that no tie names"
    manifest.save(path)
    again = Manifest.load(path)
    if again.file != manifest.file or again.to_json() != manifest.to_json() or again.hash != manifest.hash:
        yield "another manifest after a round trip through the disk"


@pytest.mark.slow
def test_manifests_of_all_model_types(tmp_path: Path) -> None:
    wrong, not_buildable = {}, {}
    built = 0
    for model_type in model_types_with_a_plan():
        try:
            model = build_model(model_type)
        except ModelError as error:
            not_buildable[model_type] = "; ".join((error.message, *error.help))
            continue
        built += 1
        manifest = Manifest(build_manifest(model, model_type, trace=False))
        if found := list(differences(model, manifest, tmp_path / "manifest.json")):
            wrong[model_type] = found
    assert wrong == {}
    assert {name: reason for name, reason in not_buildable.items() if NOT_BUILDABLE.get(name, "?") not in reason} == {}
    assert built >= 180


@pytest.mark.parametrize(
    "model_type, dtype", [("deepseek_v3", "bfloat16"), ("t5", "float16"), ("qwen3_next", "bfloat16")]
)
def test_float32_modules_are_those_that_transformers_wraps_alone(model_type: str, dtype: str) -> None:
    model = build_model(model_type, config={"dtype": dtype})
    manifest = Manifest(build_manifest(model, model_type, trace=False))
    own = set(model._fsdp_plan)
    _, _, fsdp = model._resolve_parallel_plans(DistributedConfig(fsdp_size=2))
    assert set(manifest.file.float32_modules) - own == {generic_name(name) for name in fsdp} - own
    assert all(
        entry.dtype == ("float32" if generic_name(owner.name) in manifest.file.float32_modules else dtype)
        for owner, entry in manifest.parameters.values()
        if entry.name == "weight"
    )


def test_composite_models_prefix_the_rules_of_their_text_model() -> None:
    manifest = build_manifest(build_model("qwen2_5_vl"), "vl", trace=False)
    assert manifest.plans.tp["model.language_model.layers.*.self_attn.q_proj"] == "colwise"
    assert manifest.plans.tp["model.language_model.embed_tokens"] == "embedding_rowwise"
    assert manifest.input_embeddings == "model.language_model.embed_tokens"
    # Requirements name the fields of the text model.
    assert isinstance(manifest.config["num_key_value_heads"], int)
    assert "vision_config" in manifest.config


def test_order_of_children_that_no_rule_gives() -> None:
    """Numbers out of order, leading zeros, and two parents alike but for the order of their children."""
    model = nn.Module()
    model.odd = nn.ModuleDict({"10": nn.Linear(1, 1), "2": nn.Linear(1, 1), "007": nn.Linear(1, 1)})
    one, other = nn.Module(), nn.Module()
    one.first, one.second = nn.Linear(1, 1), nn.Identity()
    other.second, other.first = nn.Identity(), nn.Linear(1, 1)
    model.list = nn.ModuleList([one, other])
    manifest = Manifest(build_manifest(model, "odd", trace=False))
    assert list(manifest.modules) == [name for name, _ in model.named_modules()]


def test_tied_parameters_are_listed_under_each_name() -> None:
    model = build_model("gemma2")
    manifest = Manifest(build_manifest(model, "tied", trace=False))
    assert manifest.file.ties == (("lm_head.weight", "model.embed_tokens.weight"),)
    assert {"lm_head.weight", "model.embed_tokens.weight"} <= manifest.parameters.keys()
    assert len(manifest.parameters) == len(list(model.named_parameters())) + 1


def test_shared_tensors_are_ties_without_being_declared() -> None:
    model = nn.Module()
    model.one, model.other, model.third = (nn.Linear(2, 2, bias=False) for _ in range(3))
    model.other.weight = model.third.weight = model.one.weight
    ties = build_manifest(model, "shared", trace=False).ties
    assert ties == (("other.weight", "one.weight"), ("third.weight", "one.weight"))
