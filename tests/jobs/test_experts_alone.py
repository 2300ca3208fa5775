"""Experts split alone, as the documents have it: `tp_plan: {}` beside `ep_size`, on real ranks against one process."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.tensor import DTensor

import planc
from tests.proof.models import batches, build
from tests.proof.one_process import step
from tests.runtime.ranks import run_ranks

SPELLINGS: dict[str, dict[str, Any]] = {
    "today's": {"tp_size": 2, "ep_size": 2, "tp_plan": {}},
    "summed": {"tp_size": 2, "ep_size": 2, "tp_plan": {}, "ep_implementation": "all_reduce"},
    "the old one": {"tp_size": 2, "enable_expert_parallel": True},
}


def gradients(model: Any) -> dict[str, torch.Tensor]:
    found = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    return {n: g.full_tensor() if isinstance(g, DTensor) else g for n, g in found.items()}


def trained(folder: Path, plan: dict[str, Any]) -> tuple[list[str], float]:
    """The sharded parameters, and by how much of its scale any gradient departs from one process's."""
    ids = batches(1)
    whole, model = build("qwen3_moe"), build("qwen3_moe")
    step(whole, ids)
    planc.apply(model, planc.compile(folder, plan))
    step(model, ids)
    expected, found = gradients(whole), gradients(model)
    assert found.keys() == expected.keys()
    error = max(float((found[n] - g).abs().max() / g.abs().max().clamp_min(1e-12)) for n, g in expected.items())
    return [name for name, parameter in model.named_parameters() if isinstance(parameter, DTensor)], error


@pytest.mark.ranks
@pytest.mark.parametrize("plan", SPELLINGS.values(), ids=SPELLINGS)
def test_every_spelling_trains_as_one_process(plan: dict[str, Any], tmp_path: Path) -> None:
    build("qwen3_moe").config.save_pretrained(tmp_path)
    for sharded, error in run_ranks(2, trained, tmp_path, plan):
        assert sharded and all(".mlp.experts." in name for name in sharded)
        assert error < 1e-4


@pytest.mark.parametrize("plan", SPELLINGS.values(), ids=SPELLINGS)
def test_transformers_is_given_no_such_plan(plan: dict[str, Any], tmp_path: Path) -> None:
    build("qwen3_moe").config.save_pretrained(tmp_path)
    assert planc.check(tmp_path, plan).ok
    with pytest.raises(planc.PlanError, match="PL116"):
        planc.distributed_config(plan, tmp_path)
    with pytest.raises(planc.PlanError, match="PL116"):
        planc.distributed_config(plan, tmp_path, training=False)
