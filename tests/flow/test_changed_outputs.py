"""Which styles hand on what can't be changed in place in training: as the objects of transformers do it."""

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.tensor import Replicate

import planc
from planc.flow.boundaries import Boundary
from planc.flow.plan import ranks_for
from planc.layouts.layout import Layout
from planc.model.manifest import Module, ModuleEntry, ParameterEntry
from planc.program.program import Program
from planc.runtime.interpreter import apply_operations
from planc.runtime.mesh import build_meshes
from planc.styles.registry import STYLES
from planc.verify.observing import gathered
from tests.check.hand_made import linear, toy
from tests.flow.changing_models import CHANGES, Changing
from tests.runtime.ranks import run_ranks


class Named(nn.Linear):
    """A projection as `mla_kv_a_proj` finds it."""

    class config:  # noqa: N801
        qk_rope_head_dim = 2


def placed(name: str) -> Module:
    """The module that a style stands on in here."""
    weight = ParameterEntry(name="weight", shape=(4, 4), dtype="float32")
    sizes = {"num_embeddings": 4, "embedding_dim": 4}
    table = ModuleEntry(name="made", class_name="Embedding", sizes=sizes, parameters=(weight,))
    return toy(table if name.startswith("embedding") else linear("made", 4, 4)).modules["made"]


# Those that may stand on a module. Dispatched experts are closed to the flow.
NAMES = tuple(sorted(n for n, s in STYLES.items() if "tp" in s.plans and s().objection(placed(n)) is None))


def refused_by_transformers() -> dict[str, tuple[bool, bool]]:
    """By style, whether torch refuses to change its output in place: with gradients, and without."""
    import transformers.distributed.tensor_parallel
    from transformers.distributed.parallel_utils import ALL_PARALLEL_STYLES

    assert transformers.distributed.tensor_parallel
    mesh = build_meshes(Layout(tp_size=1)).of("tp")
    return {
        name: (
            refuses(ALL_PARALLEL_STYLES[name], name, mesh, True),
            refuses(ALL_PARALLEL_STYLES[name], name, mesh, False),
        )
        for name in NAMES
    }


def refuses(style: Any, name: str, mesh: Any, gradients: bool) -> bool:
    is_embedding = name.startswith("embedding")
    module: nn.Module = nn.Embedding(4, 4) if is_embedding else Named(4, 4)
    for parameter in list(module._parameters):
        style.shard_param(module, parameter, mesh)
    style.install_forward(module, mesh)
    with torch.set_grad_enabled(gradients):
        output = module(torch.tensor([1, 2]) if is_embedding else torch.randn(2, 4))
        try:
            output += 1
        except RuntimeError as error:
            assert "is a view and is being modified inplace" in str(error)
            return True
    return False


def hands_on_a_view(name: str) -> bool:
    kind = STYLES[name]().type(placed(name))
    return Boundary(kind, name, "made", ranks_for(2, {4})).hands_on_a_view


@pytest.mark.ranks
def test_styles_hand_on_what_transformers_does() -> None:
    (found,) = run_ranks(1, refused_by_transformers)
    assert set(found) == set(STYLES) - {"ep_dispatch_experts", "grouped_gemm", "packed_rowwise"}
    assert {True, False} == {refused for refused, _ in found.values()}
    assert {name: refused for name, (refused, _) in found.items()} == {name: hands_on_a_view(name) for name in found}
    assert not any(without for _, without in found.values())


def refused_changes() -> list[str]:
    """The changes that torch refuses where transformers' `colwise_gather_output` stands on the projection."""
    from transformers.distributed.tensor_parallel import ColwiseParallel

    mesh = build_meshes(Layout(tp_size=1)).of("tp")
    found = []
    for change in CHANGES:
        model = Changing(change)
        style = ColwiseParallel(output_layouts=Replicate())
        for name in ("weight", "bias"):
            style.shard_param(model.proj, name, mesh)
        style.install_forward(model.proj, mesh)
        try:
            model(torch.arange(12).view(2, 6))
        except RuntimeError as error:
            if "view" not in str(error) or "inplace" not in str(error):
                raise
            found.append(change)
    return found


@pytest.mark.ranks
def test_changes_are_noted_where_torch_refuses_them() -> None:
    (refused,) = run_ranks(1, refused_changes)
    plan = {"tp_size": 2, "tp_plan": {"proj": "colwise_gather_output"}}
    noted = []
    for change in CHANGES:
        report = planc.check(f"tests.flow.changing_models:{change.replace(' ', '_')}", plan, target="trainer")
        if "PL415" in {found.code for found in report.diagnostics}:
            noted.append(change)
    assert noted == refused


def trained_by_planc(programs: dict[str, Program]) -> dict[str, float]:
    """How far gradients are off one process's, by the change, after changes that torch lets planc's runtime make."""
    meshes = build_meshes(Layout(tp_size=2))
    found = {}
    for change, program in programs.items():
        torch.manual_seed(0)
        whole = Changing(change)
        model = apply_operations(copy.deepcopy(whole), program.operations, meshes)
        for one in (whole, model):
            one(torch.arange(12).view(2, 6)).square().sum().backward()
        pairs = zip(model.parameters(), whole.parameters(), strict=True)
        found[change] = max(float((gathered(own.grad) - other.grad).abs().max()) for own, other in pairs)
    return found


@pytest.mark.ranks
def test_plancs_runtime_trains_them() -> None:
    plan = {"tp_size": 2, "tp_plan": {"proj": "colwise_gather_output"}}
    names = {change: f"tests.flow.changing_models:{change.replace(' ', '_')}" for change in CHANGES}
    programs = {change: planc.compile(name, plan) for change, name in names.items() if change != "dropout"}
    for found in run_ranks(2, trained_by_planc, programs):
        assert found.keys() == programs.keys()
        assert max(found.values()) < 1e-4, found
