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


def differing_shards(whole: Any, model: Any, styles: dict[str, str], mesh: Any) -> list[str]:
    """Parameters whose local tensor or placements aren't those that transformers' own application gives."""
    from transformers.distributed.tensor_parallel import apply_tensor_parallelism

    theirs = copy.deepcopy(whole)
    for tied in theirs.all_tied_weights_keys:
        # As `from_pretrained` does: tied weights are one again only after the plan was applied.
        owner, _, name = tied.rpartition(".")
        module = theirs.get_submodule(owner)
        module._parameters[name] = torch.nn.Parameter(module._parameters[name].detach().clone())
    apply_tensor_parallelism(theirs, mesh, styles)
    theirs.tie_weights()
    expected = dict(theirs.named_parameters(remove_duplicate=False))
    found = dict(model.named_parameters(remove_duplicate=False))
    assert found.keys() == expected.keys()
    return [name for name in expected if not same(found[name], expected[name])]


def same(found: Any, expected: Any) -> bool:
    if type(found.data) is not type(expected.data):
        return False
    local, other = getattr(found, "_local_tensor", found), getattr(expected, "_local_tensor", expected)
    return torch.equal(local, other) and getattr(found, "placements", ()) == getattr(expected, "placements", ())


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
        errors: dict[str, Any] = dict.fromkeys(differing_shards(whole, model, styles, meshes.of("tp")), float("inf"))
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
