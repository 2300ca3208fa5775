"""Compiled programs place every parameter as transformers' own application does, for every model type with a plan."""

import copy
from typing import Any

import pytest
import torch
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore

from planc.layouts.layout import Layout
from tests.models import buildable_model_types, meta_model
from tests.runtime.ranks import start_ranks

# Model types in one process: building, compiling and applying one takes a fraction of a second.
BATCH = 12
SIZE = 4


def described(model: torch.nn.Module) -> dict[str, tuple[Any, ...]]:
    """What each parameter is on this rank: placements, mesh and local shape."""
    return {name: _described(p) for name, p in model.named_parameters(remove_duplicate=False)}


def _described(parameter: torch.nn.Parameter) -> tuple[Any, ...]:
    if not isinstance(parameter, DTensor):
        return ("whole", tuple(parameter.shape), parameter.requires_grad)
    names = parameter.device_mesh.mesh_dim_names
    return (parameter.placements, names, tuple(parameter._local_tensor.shape), parameter.requires_grad)


def theirs(model: Any, mesh: Any) -> dict[str, tuple[Any, ...]] | str:
    from transformers.distributed import DistributedConfig
    from transformers.distributed.tensor_parallel import apply_tensor_parallelism

    # As `from_pretrained` does: tied weights are one again only after the plan was applied.
    for tied in model.all_tied_weights_keys:
        owner, _, name = tied.rpartition(".")
        module = model.get_submodule(owner)
        module._parameters[name] = torch.nn.Parameter(torch.empty_like(module._parameters[name]))
    try:
        styles, _, _ = model._resolve_parallel_plans(DistributedConfig(tp_size=SIZE))
        apply_tensor_parallelism(model, mesh, styles)
    except (ValueError, AttributeError, KeyError) as error:
        return f"refused: {type(error).__name__}: {error}"
    model.tie_weights()
    return described(model)


def ours(model: Any, name: str, meshes: Any) -> dict[str, tuple[Any, ...]] | str:
    from planc.model.sources import load_manifest
    from planc.program.errors import ProgramError
    from planc.program.lower import lower
    from planc.resolve.layout import derive_layout
    from planc.resolve.resolver import resolve
    from planc.runtime.interpreter import apply_operations
    from planc.syntax.parser import parse_text

    manifest = load_manifest(name)
    plan, _ = parse_text(f"tp_size: {SIZE}\n", "plan.yaml")
    assert plan is not None
    try:
        program = lower(plan, resolve(plan, manifest, derive_layout(plan)), manifest)
    except ProgramError as error:
        return f"refused: {error}"
    apply_operations(model, program.operations, meshes)
    return described(model)


def compare(names: list[str], rank: int) -> dict[str, Any]:
    """For each model type: the parameters that differ, or what both sides refuse."""
    from planc.runtime.mesh import build_meshes

    torch.distributed.init_process_group("fake", rank=rank, world_size=SIZE, store=FakeStore())
    meshes = build_meshes(Layout(tp_size=SIZE), "cpu")
    found: dict[str, Any] = {}
    for name in names:
        model = meta_model(name)
        if not model._tp_plan:
            continue  # experts alone: there is nothing that tp_size could split
        expected = theirs(copy.deepcopy(model), meshes.of("tp"))
        got = ours(model, name, meshes)
        if isinstance(expected, str) or isinstance(got, str):
            found[name] = (expected, got) if not (isinstance(expected, str) and isinstance(got, str)) else {}
            continue
        found[name] = {n: (expected.get(n), got.get(n)) for n in expected | got if expected.get(n) != got.get(n)}
    return found


# transformers 5.24.0 brings an expert plan for these, and no tensor plan.
WITHOUT_TP_PLAN = {"openai_privacy_filter", "zaya"}


@pytest.mark.slow
@pytest.mark.parametrize("start", range(0, len(buildable_model_types()), BATCH))
def test_same_placements(start: int) -> None:
    names = buildable_model_types()[start : start + BATCH]
    (outcome,) = start_ranks(1, compare, names, (start // BATCH) % SIZE, init=False, timeout=300)
    assert outcome.failure is None, outcome.failure
    assert set(names) - outcome.result.keys() <= WITHOUT_TP_PLAN
    assert not {name: differing for name, differing in outcome.result.items() if differing}
