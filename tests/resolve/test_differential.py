"""`resolve` gives the concrete name-to-style maps of transformers itself, for every model type that carries a plan."""

import copy
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from transformers.distributed import DistributedConfig

from planc.model.building.builder import build_manifest
from planc.model.manifest import Manifest
from planc.resolve.layout import derive_layout
from planc.resolve.resolver import PLANS, resolve
from planc.syntax.matching import generic_name
from planc.syntax.parser import parse_text
from tests.models import buildable_model_types, meta_model

# Layouts that switch each plan on alone and together; `None` sizes take transformers' own defaults.
LAYOUTS: tuple[dict[str, Any], ...] = (
    {"tp_size": 2},
    {"tp_size": 4, "fsdp_size": 2},
    {"fsdp_size": 4},
    {"tp_size": 2, "ep_size": 2},
    {"fsdp_size": 4, "ep_size": 4},
    {"tp_size": 2, "fsdp_size": 4, "ep_size": 4},
    {"tp_size": 2, "dp_replicate_size": 2},
    {"tp_size": 2, "tp_plan": {}},
    {"tp_size": 2, "enable_expert_parallel": True},
    {"pp_size": 2, "tp_size": 2},
)
TP_STYLES = ("colwise", "rowwise", "replicate", "colwise_gather_output", "all_reduce")


@dataclass
class Outcome:
    """What both sides say of one model: `refused` where transformers raises instead of resolving."""

    compared: int = 0
    refused: dict[str, str] = field(default_factory=dict)


def overrides(model: torch.nn.Module, seed: str) -> Iterator[dict[str, Any]]:
    """Plans with rules that override, add to and extend the model's own, drawn with `seed`."""
    choose = random.Random(seed)
    modules = sorted({generic_name(name) for name, _ in model.named_modules() if name})
    parameters = sorted({generic_name(name) for name, _ in model.named_parameters()})
    own = sorted(model._tp_plan or {})
    for size in (1, 4):
        named = choose.sample(modules, min(size, len(modules))) + choose.sample(parameters, min(size, len(parameters)))
        named += choose.sample(own, min(size, len(own)))
        yield {"tp_size": 2, "tp_plan": {name: choose.choice(TP_STYLES) for name in named}}
    if model._ep_plan:
        named = choose.sample(modules, min(2, len(modules))) + choose.sample(sorted(model._ep_plan), 1)
        yield {"tp_size": 2, "ep_size": 2, "ep_plan": dict.fromkeys(named, "grouped_gemm")}
    if model._fsdp_plan:
        named = choose.sample(modules, min(2, len(modules)))
        yield {"fsdp_size": 2, "fsdp_plan": dict.fromkeys(named, "keep_full_weight")}


def theirs(model: torch.nn.Module, config: dict[str, Any]) -> tuple[dict[str, str], ...] | str:
    """transformers' concrete plans, or the message with which it refuses."""
    plans = {name: copy.copy(getattr(model, name)) for name in ("_tp_plan", "_ep_plan", "_fsdp_plan")}
    try:
        return model._resolve_parallel_plans(DistributedConfig(**config))
    except ValueError as error:
        return str(error)
    finally:
        for name, plan in plans.items():
            setattr(model, name, plan)


def ours(manifest: Manifest, config: dict[str, Any]) -> tuple[dict[str, str], ...]:
    plan, findings = parse_text(json.dumps(config), "plan.json")
    assert plan is not None and not findings, findings
    resolved = resolve(plan, manifest, derive_layout(plan))
    return tuple({name: a.style.name for name, a in resolved.plan(kind).items()} for kind in PLANS)


@pytest.mark.parametrize("model_type", buildable_model_types())
def test_same_concrete_plans(model_type: str) -> None:
    model = meta_model(model_type)
    manifest = Manifest(build_manifest(model, name=model_type))
    outcome = Outcome()
    for config in (*LAYOUTS, *overrides(model, model_type)):
        expected = theirs(model, config)
        if isinstance(expected, str):
            outcome.refused[str(config)] = expected
            continue
        got = ours(manifest, config)
        for kind, mine, other in zip(PLANS, got, expected, strict=True):
            assert mine == other, f"{model_type} {config} {kind}_plan"
        if config.get("fsdp_size", 1) > 1:
            assert list(got[2]) == list(expected[2]), f"{model_type} {config}: order of FSDP groups"
        outcome.compared += 1
    assert outcome.compared >= 2, outcome
    # It refuses only what `check` reports: a size above 1 without a plan, or an EP rule where it can't stand.
    assert all("no `" in why or "EP" in why or "ep_" in why for why in outcome.refused.values()), outcome.refused
