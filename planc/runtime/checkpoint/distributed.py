"""The tensors of a sharded model, of which rank 0 asks the others for regions.

Every rank calls `read` with the same arguments in the same order. Only rank 0 gets the values; the others send what
they hold of the region and get a tensor on the meta device.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from planc.program.placements import Interval, Region
from planc.runtime.loading import region_of

WRITER = 0


@dataclass(frozen=True)
class Share:
    """What one rank holds of a tensor; `is_parameter` tells it from a buffer."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    region: Region
    is_parameter: bool = True


class ShardedTensors:
    """The tensors of a model by name, wherever their shards are.

    `shares` has for each name which rank holds what; of several ranks that hold the same only the first. Names are in
    the order of the ranks' own state dicts, one rank after the other: with pipeline stages that of the whole model.
    """

    def __init__(self, local: Mapping[str, Tensor], parameters: frozenset[str] = frozenset()) -> None:
        self._local = {name: _local(tensor) for name, tensor in local.items()}
        own = {
            name: Share(tuple(tensor.shape), tensor.dtype, region_of(tensor), name in parameters)
            for name, tensor in local.items()
            if holds_first(tensor)
        }
        self._rank, gathered = 0, [own]
        if dist.is_initialized():
            self._rank = dist.get_rank()
            gathered = [{} for _ in range(dist.get_world_size())]
            dist.all_gather_object(gathered, own)
        self.shares: dict[str, dict[int, Share]] = {}
        for rank, shares in enumerate(gathered):
            for name, share in shares.items():
                others = self.shares.setdefault(name, {})
                if all(share.region != other.region for other in others.values()):
                    others[rank] = share

    @property
    def is_writer(self) -> bool:
        return self._rank == WRITER

    def share(self, name: str) -> Share:
        """Shape and dtype of a tensor are in each of its shares."""
        return next(iter(self.shares[name].values()))

    def read(self, name: str, region: Region) -> Tensor:
        """The region, on the CPU of rank 0."""
        shares = self.shares[name]
        dtype = self.share(name).dtype
        if not self.is_writer:
            if self._rank in shares and (mine := overlap(shares[self._rank].region, region)) is not None:
                dist.send(self._cut(name, mine), dst=WRITER)
            return torch.empty(region.shape, dtype=dtype, device="meta")
        result = torch.empty(region.shape, dtype=dtype)
        for rank, share in sorted(shares.items()):
            if (found := overlap(share.region, region)) is not None:
                block = self._cut(name, found) if rank == WRITER else self._receive(rank, found, dtype)
                found.put(block.to(result.device), result)
        return result

    def _cut(self, name: str, found: "Overlap") -> Tensor:
        return found.cut(self._local[name]).contiguous().to(_device())

    def _receive(self, rank: int, found: "Overlap", dtype: torch.dtype) -> Tensor:
        block = torch.empty(found.shape, dtype=dtype, device=_device())
        dist.recv(block, src=rank)
        return block


def holds_first(tensor: Tensor) -> bool:
    """Whether no other rank of the tensor's own mesh holds the same part before this one."""
    if not isinstance(tensor, DTensor):
        return True
    coordinate = tensor.device_mesh.get_coordinate()
    assert coordinate is not None  # a rank only has tensors of its own meshes
    return all(
        place == 0 or placement.is_shard() or hasattr(placement, "split_factor")
        for place, placement in zip(coordinate, tensor.placements, strict=True)
    )


@dataclass(frozen=True)
class Overlap:
    """Where two regions meet: for each dim, `(start in the share, start in the request, length)` of every piece."""

    dims: tuple[tuple[tuple[int, int, int], ...], ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(sum(length for _, _, length in pieces) for pieces in self.dims)

    def cut(self, local: Tensor) -> Tensor:
        """The meeting part of the share, pieces one after the other."""
        for dim, pieces in enumerate(self.dims):
            parts = [local.narrow(dim, start, length) for start, _, length in pieces]
            local = parts[0] if len(parts) == 1 else torch.cat(parts, dim)
        return local

    def put(self, block: Tensor, result: Tensor) -> None:
        """Copy what `cut` gave into the request."""
        for piece in product(*(_with_offsets(pieces) for pieces in self.dims)):
            source, target = block, result
            for dim, (offset, start, length) in enumerate(piece):
                source, target = source.narrow(dim, offset, length), target.narrow(dim, start, length)
            target.copy_(source)


def _with_offsets(pieces: Sequence[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    found, offset = [], 0
    for _, start, length in pieces:
        found.append((offset, start, length))
        offset += length
    return found


def overlap(share: Region, request: Region) -> Overlap | None:
    """Where the regions meet; None where they don't."""
    dims = tuple(_meet(a, b) for a, b in zip(share.dims, request.dims, strict=True))
    return Overlap(dims) if all(dims) else None


def _meet(share: Sequence[Interval], request: Sequence[Interval]) -> tuple[tuple[int, int, int], ...]:
    found, offset = [], 0
    for start, stop in share:
        place = 0
        for first, last in request:
            low, high = max(start, first), min(stop, last)
            if low < high:
                found.append((offset + low - start, place + low - first, high - low))
            place += last - first
        offset += stop - start
    return tuple(found)


def _local(tensor: Tensor) -> Tensor:
    return tensor._local_tensor if isinstance(tensor, DTensor) else tensor


def _device() -> torch.device:
    """Where the process group moves tensors from."""
    if dist.is_initialized() and dist.get_backend() == "nccl":
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")
