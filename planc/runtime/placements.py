"""Placements as torch's DTensor writes them, and the part of a dim that a rank holds under them."""

from collections.abc import Iterable, Sequence

from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Partial as TorchPartial
from torch.distributed.tensor import Placement as TorchPlacement
from torch.distributed.tensor import Replicate as TorchReplicate
from torch.distributed.tensor import Shard as TorchShard
from torch.distributed.tensor.placement_types import _StridedShard

from planc.layouts.placement import Placement, Replicate, Shard, StridedShard

Interval = tuple[int, int]


def to_torch(placement: Placement, ndim: int) -> TorchPlacement:
    """`placement` of a tensor with `ndim` dims as a DTensor placement, its dim counted from the first one."""
    if isinstance(placement, Replicate):
        return TorchReplicate()
    if isinstance(placement, Shard):
        return TorchShard(placement.dim % ndim)
    if isinstance(placement, StridedShard):
        return _StridedShard(dim=placement.dim % ndim, split_factor=placement.split_factor)
    return TorchPartial()


def chunk(size: int, count: int, index: int) -> Interval:
    """Where chunk `index` of `count` lies in `size`, in `torch.chunk`'s sizes: the last ones are shorter or empty."""
    width = -(-size // count)
    start = min(index * width, size)
    return start, min(start + width, size)


def _part(intervals: Sequence[Interval], start: int, end: int) -> Iterable[Interval]:
    """What lies between the flat positions `start` and `end` of `intervals` laid end to end."""
    position = 0
    for first, last in intervals:
        low, high = max(start, position), min(end, position + last - first)
        if low < high:
            yield first + low - position, first + high - position
        position += last - first


def _length(intervals: Sequence[Interval]) -> int:
    return sum(last - first for first, last in intervals)


def local_intervals(
    shape: Sequence[int], mesh: DeviceMesh, placements: Sequence[TorchPlacement]
) -> list[list[Interval]]:
    """For each dim of a global `shape`, the intervals that this rank holds, in the order in which they lie locally.

    Placements apply from the outermost mesh dim inwards, as `distribute_tensor` does it in torch 2.13.0: a strided
    shard cuts what it finds into `split_factor` parts and takes this rank's chunk of each.
    """
    result: list[list[Interval]] = [[(0, size)] for size in shape]
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        raise ValueError("this rank is not part of the mesh")
    for mesh_dim, placement in enumerate(placements):
        if not isinstance(placement, TorchShard | _StridedShard):
            continue
        held, count, index = result[placement.dim], int(mesh.size(mesh_dim)), int(coordinate[mesh_dim])
        total = _length(held)
        parts = int(placement.split_factor) if isinstance(placement, _StridedShard) else 1
        taken: list[Interval] = []
        for part in range(parts):
            first, last = chunk(total, parts, part)
            start, end = chunk(last - first, count, index)
            taken.extend(_part(held, first + start, first + end))
        result[placement.dim] = taken
    return result
