"""`planc.distributed_config`: transformers, given it, resolves and places everything as planc does."""

import copy
import warnings
from typing import Any

import pytest
from transformers.distributed import DistributedConfig

import planc
from planc.analysis import Settings, analyse
from planc.api import arguments
from planc.program.export import export
from planc.resolve.resolver import PLANS
from tests.models import meta_model

# Plans that transformers can be given; each for a model of `tests.models`.
CARRIED: dict[str, tuple[str, dict[str, Any]]] = {
    "the model's own plan": ("qwen3_moe", {"tp_size": 2, "fsdp_size": 4, "ep_size": 4}),
    "alternation is written out": (
        "llama",
        {"tp_size": 2, "tp_plan": {"model.layers.*.mlp.{gate,up}_proj": "colwise"}},
    ),
    "a set that covers all layers": (
        "llama",
        {"tp_size": 2, "tp_plan": {"model.layers.[0-31].mlp.up_proj": "colwise"}},
    ),
    "two rules that cover all layers": (
        "llama",
        {
            "tp_size": 2,
            "tp_plan": {"model.layers.[0-9].mlp.up_proj": "colwise", "model.layers.[10-31].mlp.up_proj": "colwise"},
        },
    ),
    "arguments that repeat the default": (
        "phi3",
        {"tp_size": 2, "tp_plan": {
            "model.layers.*.mlp.gate_up_proj": "packed_colwise(split_factor=2)",
            "model.layers.*.mlp.down_proj": "rowwise",
        }},
    ),
    "no defaults, all rules spelt out": ("qwen3_moe", {"fsdp_size": 2, "ep_size": 2, "defaults": "none", "ep_plan": {
        "model.layers.*.mlp.experts": "ep_dispatch_experts",
        "model.layers.*.mlp.experts.gate_up_proj": "grouped_gemm",
        "model.layers.*.mlp.experts.down_proj": "grouped_gemm",
    }, "fsdp_plan": {
        "model.embed_tokens": "free_full_weight", "model.layers.*": "free_full_weight",
        "model.norm": "keep_full_weight", "lm_head": "keep_full_weight",
    }}),
    "options": ("llama", {"fsdp_size": 2, "fsdp_mixed_precision": True, "fsdp_cpu_offload": True}),
    "implementation": ("qwen3_moe", {"fsdp_size": 4, "ep_size": 4, "ep_implementation": "all_to_all"}),
    "FSDP rules": ("llama", {"fsdp_size": 2, "fsdp_plan": {"model.layers.*.mlp": "free_full_weight"}}),
    "sizes of HSDP and a pipeline": ("llama", {"tp_size": 2, "dp_replicate_size": 2}),
}  # fmt: skip

# Plans with a rule that transformers has no words for: its key, and why.
NOT_CARRIED: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "one layer": (
        "llama",
        {"tp_size": 2, "tp_plan": {
            "model.layers.3.mlp.{gate,up}_proj": "colwise_gather_output",
            "model.layers.3.mlp.down_proj": "rowwise_split_input",
        }},
        "model.layers.3.mlp.{gate,up}_proj",
        "can't tell the layers of `model.layers.*.mlp.gate_proj` apart",
    ),
    "layers that differ": (
        "llama",
        {"tp_size": 2, "tp_plan": {
            "model.layers.*.mlp.up_proj": "colwise_gather_output", "model.layers.[0-3].mlp.up_proj": "colwise",
        }},
        "model.layers.[0-3].mlp.up_proj",
        "can't tell the layers of `model.layers.*.mlp.up_proj` apart",
    ),
    "arguments": (
        "phi3",
        {"tp_size": 2, "tp_plan": {"model.layers.*.mlp.gate_up_proj": "packed_colwise(split_factor=4)"}},
        "model.layers.*.mlp.gate_up_proj",
        "no arguments",
    ),
    "no defaults": (
        "llama",
        {"tp_size": 2, "defaults": "none", "tp_plan": {"lm_head": "colwise_gather_output"}},
        "model.layers.*.mlp.up_proj",
        "always adds the model's own rules",
    ),
}  # fmt: skip


def theirs(model: Any, config: DistributedConfig) -> tuple[dict[str, str], ...]:
    plans = {name: copy.copy(getattr(model, name)) for name in ("_tp_plan", "_ep_plan", "_fsdp_plan")}
    try:
        resolved: tuple[dict[str, str], ...] = model._resolve_parallel_plans(config)
        return resolved
    finally:
        for name, plan in plans.items():
            setattr(model, name, plan)


@pytest.mark.parametrize("case", CARRIED)
def test_transformers_resolves_it_to_the_same(case: str) -> None:
    name, plan = CARRIED[case]
    config = planc.distributed_config(plan, name)
    assert isinstance(config, DistributedConfig)
    ours = planc.resolve(name, plan)
    expected = tuple({target: a.style.name for target, a in ours.plan(kind).items()} for kind in PLANS)
    assert theirs(meta_model(name), config) == expected
    sizes = ("pp_size", "dp_replicate_size", "fsdp_size", "tp_size", "ep_size", "ep_implementation")
    assert all(getattr(config, size) == getattr(ours.layout, size) for size in sizes)


def test_options_are_carried() -> None:
    name, plan = CARRIED["options"]
    config = planc.distributed_config(plan, name)
    assert (config.fsdp_mixed_precision, config.fsdp_cpu_offload) == (True, True)


@pytest.mark.parametrize("case", NOT_CARRIED)
def test_what_cant_be_carried_is_said(case: str) -> None:
    name, plan, key, reason = NOT_CARRIED[case]
    # Not checked: some of these compute something else, too.
    context = analyse(plan, arguments("distributed_config", name, None, {}), Settings(rules=False)).context
    assert context is not None
    found = export(context.plan, context.resolved, context.manifest).findings
    assert any(d.key == key and reason in d.message for d in found), found
    assert all(d.code == "PL605" and d.span is not None and d.target_count for d in found)


def test_it_is_an_error_to_ask_for_such_a_config() -> None:
    name, plan, key, _ = NOT_CARRIED["one layer"]
    with pytest.raises(planc.PlanError, match="PL605") as caught:
        planc.distributed_config(plan, name)
    assert key in {d.key for d in caught.value.report.diagnostics}


def test_a_plan_with_errors_gives_no_config() -> None:
    with pytest.raises(planc.PlanError, match="PL1"):
        planc.distributed_config({"tp_size": 2, "tp_plan": {"model.layers.*.mlp.upproj": "colwise"}}, "llama")


@pytest.mark.parametrize("started, tp_size", [("8", 4), ("2", 1), (None, 1)])
def test_auto_takes_what_the_launcher_started(
    started: str | None, tp_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job under torchrun that gives `tp_plan: auto` without a size isn't left unsharded."""
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    if started is not None:
        monkeypatch.setenv("WORLD_SIZE", started)
    found = planc.distributed_config({"tp_plan": "auto", "fsdp_size": 2}, "llama")
    assert (found.tp_size, found.fsdp_size) == (tp_size, 2)


def test_what_transformers_gets_wrong_in_training_is_a_warning() -> None:
    """PL606, where transformers' own runtime is what will run."""
    plan = {"tp_size": 2}
    with pytest.warns(UserWarning, match="PL606: with gradient accumulation transformers sums"):
        planc.distributed_config(plan, "qwen3")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        planc.distributed_config(plan, "qwen3", training=False)
        planc.distributed_config(plan, "llama")
