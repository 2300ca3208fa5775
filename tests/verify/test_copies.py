"""Small copies keep what matters of the large model."""

import contextlib
import copy
import math
from typing import Any

import pytest
import torch
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from planc.verify.copying import depth
from planc.verify.copying.building import build, config_from
from planc.verify.copying.copy import MOST_PARAMETERS, SmallCopy, small_copy
from planc.verify.copying.errors import CopyError
from planc.verify.copying.fields import fields
from planc.verify.copying.roles import Role, role
from planc.verify.copying.widths import alike, candidates, shrink
from planc.verify.exact import Exact
from planc.verify.observing import objective, outputs

# One for each structure: dense, experts, latent and linear attention, state spaces, sinks, per-layer inputs, packing.
TYPES = (
    "llama", "qwen3_moe", "deepseek_v3", "gpt_oss", "jamba", "qwen3_next", "gemma3n_text", "phi3", "gpt_neox",
    "llama4_text", "falcon_h1", "qwen2_vl_text", "gemma4_vision", "muse_spark", "hunyuan_v1_dense",
)  # fmt: skip
KEPT = {Role.HEADS, Role.WIDTH, Role.VOCABULARY, Role.EXPERTS}


def first_that_builds(cls: Any, config: Any) -> Any:
    large = config.to_dict()
    for factors in candidates(large, [2]):
        with contextlib.suppress(CopyError):
            return build(cls, config_from(config, shrink(large, factors, [2])), meta=True)
    raise AssertionError("no candidate builds")


def small(model_type: str, *sizes: int, **changes: int) -> SmallCopy:
    return small_copy(CONFIG_MAPPING[model_type](**changes), sizes)


@pytest.mark.parametrize("model_type", TYPES)
def test_runs_and_every_gradient_is_finite(model_type: str) -> None:
    copied = small(model_type, 2)
    assert copied.parameters <= MOST_PARAMETERS
    model = copy.deepcopy(copied.model)
    with Exact():
        objective(outputs(model, copied.batch)).backward()  # type: ignore[no-untyped-call]
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    assert gradients
    assert all(bool(g.isfinite().all()) for g in gradients)


@pytest.mark.parametrize("model_type", ["llama", "deepseek_v3", "qwen3_next", "gemma3_text", "jamba"])
def test_has_every_kind_of_layer(model_type: str) -> None:
    config = CONFIG_MAPPING[model_type]()
    copied = small(model_type, 2)
    full_depth = first_that_builds(type(copied.model), config)
    for (name, many), (own, few) in zip(depth.stacks(full_depth), depth.stacks(copied.model), strict=True):
        assert name == own
        assert {depth.kind(layer) for layer in many} == {depth.kind(layer) for layer in few}
        assert len(few) < len(many)


@pytest.mark.parametrize("sizes", [(2,), (3,), (4, 8)])
@pytest.mark.parametrize("model_type", ["llama", "qwen3_moe", "deepseek_v3", "phi3"])
def test_keeps_divisibility(model_type: str, sizes: tuple[int, ...]) -> None:
    large = CONFIG_MAPPING[model_type]().to_dict()
    little = shrink(large, next(candidates(large, sizes)), sizes)
    before, after = ({f.path: f.value for f in fields(config)} for config in (large, little))
    for path, value in before.items():
        if role(str(path[-1])) in KEPT and value > 1:
            assert alike(value, after[path], sizes), (path, value, after[path])


def test_uneven_stays_uneven() -> None:
    large = CONFIG_MAPPING["llama"](intermediate_size=11009, num_key_value_heads=4).to_dict()
    little = shrink(large, next(candidates(large, [8])), [8])
    assert math.gcd(little["intermediate_size"], 8) == 1
    assert math.gcd(little["num_key_value_heads"], 8) == 4


def test_a_plan_that_treats_layers_differently_gets_layers_for_it() -> None:
    """Layers 0 to 9 are marked, the others not; the copy has one of each, wherever they are."""
    copied = small_copy(CONFIG_MAPPING["llama"](), [2], marks=lambda name, index: index < 10)
    assert {index < 10 for index in copied.layers["model.layers"]} == {True, False}


@pytest.mark.parametrize("model_type", ["llama", "qwen3_moe", "deepseek_v4"])
def test_tells_every_parameter(model_type: str) -> None:
    """Changing any parameter by a tenth of its size moves what is compared."""
    copied = small(model_type, 2)
    with torch.no_grad(), Exact():
        before = outputs(copied.model, copied.batch)
        gates = [n for n, _ in copied.model.named_parameters() if n.endswith("gate.weight") or "experts" in n]
        for name in gates or ["model.layers.0.mlp.up_proj.weight"]:
            own = copy.deepcopy(copied.model)
            own.get_parameter(name).mul_(1.1)
            after = outputs(own, copied.batch)
            change = max(float((after[key] - before[key]).abs().max() / before[key].abs().max()) for key in before)
            assert change > 1e-4, name
