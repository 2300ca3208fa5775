"""Placements as torch's DTensor writes them, and the part of a tensor that this rank holds under them."""

from collections.abc import Sequence

from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Partial as TorchPartial
from torch.distributed.tensor import Placement as TorchPlacement
from torch.distributed.tensor import Replicate as TorchReplicate
from torch.distributed.tensor import Shard as TorchShard
from torch.distributed.tensor.placement_types import _StridedShard

from planc.layouts.placement import Partial, Placement, Replicate, Shard, StridedShard
from planc.program.placements import Region, whole


def to_torch(placement: Placement, ndim: int) -> TorchPlacement:
    """`placement` of a tensor with `ndim` dims as a DTensor placement, its dim counted from the first one."""
    if isinstance(placement, Replicate):
        return TorchReplicate()
    if isinstance(placement, Shard):
        return TorchShard(placement.dim % ndim)
    if isinstance(placement, StridedShard):
        return _StridedShard(dim=placement.dim % ndim, split_factor=placement.split_factor)
    return TorchPartial()


def from_torch(placement: TorchPlacement) -> Placement:
    """A DTensor placement as planc writes it."""
    if isinstance(placement, _StridedShard):
        return StridedShard(placement.dim, int(placement.split_factor))
    if isinstance(placement, TorchShard):
        return Shard(placement.dim)
    return Partial() if isinstance(placement, TorchPartial) else Replicate()


def held_region(shape: Sequence[int], mesh: DeviceMesh, placements: Sequence[TorchPlacement]) -> Region:
    """The part of a tensor of global `shape` that this rank holds.

    Placements apply from the outermost mesh dim inwards, as `distribute_tensor` does it in torch 2.13.0: each one
    shards what the ones before it left.
    """
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        raise ValueError("this rank is not part of the mesh")
    region = whole(tuple(shape))
    for mesh_dim, placement in enumerate(placements):
        region = region.shard(from_torch(placement), int(mesh.size(mesh_dim)), int(coordinate[mesh_dim]))
    return region
