"""Every parameter's placement and local shape, against transformers' own application of the same plan and layout.

A fake process group of one rank and the meta device: no communication, no weights.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers.distributed import DistributedConfig
from transformers.distributed.utils import TransformersDeviceMesh

from planc.layouts.layout import DENSE_AXES, EXPERT_AXES, Layout
from planc.model.building.builder import build_manifest
from planc.model.manifest import Manifest
from planc.program.errors import ProgramError
from planc.program.lower import lower
from planc.program.placements import RankPlacements
from planc.program.program import Program
from planc.resolve.resolver import resolve
from planc.syntax.plan import Plan
from tests.models import buildable_model_types, meta_model

DENSE = Layout(tp_size=3, fsdp_size=2)
SPARSE = Layout(tp_size=2, fsdp_size=4, ep_size=4)
OTHERS = (Layout(tp_size=2), Layout(fsdp_size=2), Layout(tp_size=2, dp_replicate_size=2, fsdp_size=2))


@contextlib.contextmanager
def meshes(layout: Layout, rank: int) -> Iterator[TransformersDeviceMesh]:
    """transformers' two views of the ranks, seen by `rank`."""
    dist.init_process_group("fake", rank=rank, world_size=layout.world_size, store=FakeStore())
    try:
        views = [
            dist.init_device_mesh("cpu", tuple(map(layout.size, axes)), mesh_dim_names=axes)
            for axes in (DENSE_AXES, EXPERT_AXES)
        ]
        yield TransformersDeviceMesh(*views)
    finally:
        dist.destroy_process_group()


def applied(model: torch.nn.Module, layout: Layout, mesh: TransformersDeviceMesh) -> torch.nn.Module:
    sizes = {f"{axis}_size": layout.size(axis) for axis in (*DENSE_AXES, "ep")}
    config: Any = DistributedConfig(**sizes)
    return type(model).maybe_distribute_model(model, config, mesh)


@pytest.mark.parametrize("model_type", buildable_model_types())
def test_same_local_shapes(model_type: str) -> None:
    model = meta_model(model_type)
    manifest = Manifest(build_manifest(model, name=model_type, trace=False))
    layout = SPARSE if manifest.file.plans.ep else DENSE
    rank = layout.world_size - 1
    untie(model, manifest)
    with meshes(layout, rank) as mesh:
        try:
            applied(model, layout, mesh)
        except ValueError:
            # What transformers refuses, planc refuses.
            with pytest.raises(ProgramError):
                lower(Plan(), resolve(Plan(), manifest, layout), manifest)
            return
        program = lower(Plan(), resolve(Plan(), manifest, layout), manifest)
        expected = {name: local_shape(p) for name, p in model.named_parameters(remove_duplicate=False)}
    found = {name: region.shape for name, region in RankPlacements(program, manifest).on_rank(rank).items()}
    # Tied parameters are one tensor only after loading; planc places them as their owner from the start.
    for tied, _ in manifest.file.ties:
        del expected[tied], found[tied]
    assert expected == found
    compiles_elsewhere(manifest)


def compiles_elsewhere(manifest: Manifest) -> None:
    """Where the model has a plan, it compiles, and the file reads back as it was."""
    for layout in OTHERS:
        resolved = resolve(Plan(), manifest, layout)
        if layout.tp_size > 1 and not resolved.rules["tp"]:
            continue
        program = lower(Plan(), resolved, manifest)
        assert Program.from_json(program.to_json(), "program.json") == program


def untie(model: torch.nn.Module, manifest: Manifest) -> None:
    """As while loading: transformers applies plans before it ties weights."""
    for tied, _ in manifest.file.ties:
        module, _, name = tied.rpartition(".")
        parameter = model.get_parameter(tied)
        setattr(model.get_submodule(module), name, torch.nn.Parameter(parameter.detach().clone()))


def local_shape(parameter: torch.nn.Parameter) -> tuple[int, ...]:
    return tuple((parameter.to_local() if isinstance(parameter, DTensor) else parameter).shape)
