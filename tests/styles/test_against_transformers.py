"""Placements, refusals and local shapes of every style, against transformers 5.24.0's own on a fake process group."""

import copy
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.placement_types import Placement, _StridedShard
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers.distributed import expert_parallel, tensor_parallel  # noqa: F401 (they register their styles)
from transformers.distributed.fsdp import ALL_FSDP_STYLES
from transformers.distributed.parallel_utils import ALL_PARALLEL_STYLES

from planc.ir.operations import ShardParameter
from planc.layouts import placement as planc
from planc.layouts.layout import Layout
from planc.program.placements import whole
from planc.styles import registry
from planc.styles.style import Lowering, StyleError
from tests.styles.describing import MODULES, described, manifest_of

SIZE, RANK = 2, 1
# Its hook needs two meshes and a process group of each.
HOOKED_APART = {"ep_dispatch_experts"}


@pytest.fixture(scope="module")
def mesh() -> Iterator[DeviceMesh]:
    dist.init_process_group("fake", rank=RANK, world_size=SIZE, store=FakeStore())
    yield init_device_mesh("cpu", (SIZE,), mesh_dim_names=("tp",))
    dist.destroy_process_group()


def test_every_style_is_there() -> None:
    assert set(registry.STYLES) == set(ALL_PARALLEL_STYLES.keys())
    assert set(registry.FSDP_STYLES) == set(ALL_FSDP_STYLES)


def as_torch(placement: planc.Placement) -> Placement:
    if isinstance(placement, planc.Shard):
        return Shard(placement.dim)
    if isinstance(placement, planc.StridedShard):
        return _StridedShard(placement.dim, split_factor=placement.split_factor)
    assert isinstance(placement, planc.Replicate)
    return Replicate()


@pytest.mark.parametrize("kind", MODULES)
@pytest.mark.parametrize("name", registry.STYLES)
def test_parameters(name: str, kind: str, mesh: DeviceMesh) -> None:
    """transformers places each parameter as planc says, or fails where planc objects."""
    module = copy.deepcopy(MODULES[kind]).to("meta")
    ours = described(module)
    style = registry.STYLES[name]()
    to = Lowering(manifest_of(ours), Layout(tp_size=SIZE), "tp")
    for parameter in ours.entry.parameters:
        try:
            ALL_PARALLEL_STYLES[name].shard_param(module, parameter.name, mesh)
            failed = False
        except (ValueError, AssertionError, IndexError):
            failed = True
        objected = style.parameter_objection(ours, parameter) is not None
        operations = []
        if not objected:
            try:
                operations = list(style.lower_parameter(f"it.{parameter.name}", parameter, to))
            except StyleError:
                objected = True
        assert failed == objected, parameter.name
        if failed:
            continue
        placed = [op.placement for op in operations if isinstance(op, ShardParameter)]
        tensor = module.get_parameter(parameter.name)
        if not isinstance(tensor, DTensor):
            assert not placed
            continue
        assert tensor.placements == (as_torch(placed[0]),)
        assert tuple(tensor.to_local().shape) == whole(parameter.shape).shard(placed[0], SIZE, RANK).shape


@pytest.mark.parametrize("kind", MODULES)
@pytest.mark.parametrize("name", [n for n in registry.STYLES if n not in HOOKED_APART])
def test_hooks(name: str, kind: str, mesh: DeviceMesh) -> None:
    """What transformers refuses to hook, planc objects to; what it hooks, planc lowers."""
    module = copy.deepcopy(MODULES[kind])
    ours = described(module)
    style = registry.STYLES[name]()
    try:
        ALL_PARALLEL_STYLES[name].install_forward(module, mesh)
    except ValueError:
        assert style.objection(ours) is not None
        return
    if style.objection(ours) is None:
        to = Lowering(manifest_of(ours, qk_rope_head_dim=2), Layout(tp_size=SIZE), "tp")
        list(style.lower_module(ours, to))
    else:
        assert crashes(name, module, mesh)


def crashes(name: str, module: torch.nn.Module, mesh: DeviceMesh) -> bool:
    """Whether the forward of a module whose parameters and hooks are transformers' own fails."""
    try:
        for parameter in [n for n, _ in module.named_parameters(recurse=False)]:
            ALL_PARALLEL_STYLES[name].shard_param(module, parameter, mesh)
        hidden = torch.zeros(2, 3, 6)
        ids = torch.zeros(2, 3, dtype=torch.long)
        module.config = type("Config", (), {"qk_rope_head_dim": 2})()  # type: ignore[assignment]
        module(ids if isinstance(module, torch.nn.Embedding) else hidden)
    except (RuntimeError, TypeError, ValueError, AssertionError, AttributeError, IndexError):
        return True
    return False
