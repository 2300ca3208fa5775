"""Programs on real ranks compute what one process computes, forward and backward."""

import copy
from typing import Any

import pytest
import torch

from planc.layouts.layout import Layout
from tests.runtime.by_hand import operations
from tests.runtime.models import MODELS, batch, build, run
from tests.runtime.ranks import run_ranks

pytestmark = pytest.mark.ranks


def error(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found - expected).abs().max() / (expected.abs().max() + 1e-12))


def worst_errors(names: list[str]) -> dict[str, dict[str, float]]:
    """For each model: the largest relative error of logits (with and without autograd), loss and gradients."""
    from transformers.distributed import DistributedConfig

    from planc.runtime.interpreter import apply_operations
    from planc.runtime.mesh import build_meshes

    size = torch.distributed.get_world_size()
    meshes, found = build_meshes(Layout(tp_size=size)), {}
    for name in names:
        whole, ids = build(name), batch()
        logits, loss, gradients = run(whole, ids)
        model = copy.deepcopy(whole)
        styles, _, _ = model._resolve_parallel_plans(DistributedConfig(tp_size=size))
        apply_operations(model, operations(model, styles), meshes)
        errors: dict[str, Any] = {}
        with torch.no_grad():
            errors["inference"] = error(model(ids).logits, logits)
        own_logits, own_loss, own = run(model, ids)
        errors["logits"], errors["loss"] = error(own_logits, logits), error(own_loss, loss)
        assert own.keys() == gradients.keys()
        errors.update({parameter: error(own[parameter], gradients[parameter]) for parameter in gradients})
        found[name] = errors
    return found


@pytest.mark.parametrize("size", [2, 4])
def test_as_one_process(size: int) -> None:
    for errors in run_ranks(size, worst_errors, list(MODELS)):
        wrong = {(m, k): e for m, found in errors.items() for k, e in found.items() if not e < 2e-4}
        assert not wrong
