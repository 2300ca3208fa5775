"""Shards as torch's distributed checkpoints (DCP) take them: as many rectangular chunks as a shard really has.

torch 2.13.0 describes the shard of a DTensor as one chunk, which is wrong for strided placements (and for FSDP2 on top
of uneven shards): transformers 5.24.0 redistributes such tensors first (`distributed/checkpoint.py`). DCP has hooks for
tensors that know better, and with them nothing has to move, whatever the layouts of saving and loading.
"""

from collections.abc import Iterator
from itertools import product
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex, TensorProperties
from torch.distributed.checkpoint.planner import TensorWriteData, WriteItem, WriteItemType
from torch.distributed.tensor import DTensor

from planc.program.placements import Interval, Region
from planc.runtime.loading import region_of


class Pieces(Tensor):
    """What this rank holds of a tensor, for DCP alone: nothing can be computed with it."""

    local: Tensor
    region: Region

    @staticmethod
    def __new__(cls, tensor: Tensor) -> "Pieces":
        local: Tensor = tensor._local_tensor if isinstance(tensor, DTensor) else tensor
        made: Pieces = torch.Tensor._make_wrapper_subclass(
            cls, tensor.shape, dtype=tensor.dtype, device=local.device, requires_grad=False
        )
        made.local, made.region = local.detach(), region_of(tensor)
        return made

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        raise NotImplementedError(f"{func} of the pieces of a tensor")

    def __repr__(self) -> str:  # type: ignore[override]
        return f"Pieces({tuple(self.shape)}, {self.region})"

    def _chunks(self) -> Iterator[tuple[ChunkStorageMetadata, tuple[Interval, ...]]]:
        """Each chunk, and for each dim where its values begin and end in the local tensor."""
        for box in product(*(_with_places(intervals) for intervals in self.region.dims)):
            offsets = torch.Size([start for (start, _), _ in box])
            sizes = torch.Size([stop - start for (start, stop), _ in box])
            yield ChunkStorageMetadata(offsets, sizes), tuple(place for _, place in box)

    def __create_chunk_list__(self) -> list[ChunkStorageMetadata]:
        return [chunk for chunk, _ in self._chunks()]

    def __create_write_items__(self, fqn: str, object: Any) -> list[WriteItem]:
        properties = TensorProperties.create_from_tensor(self.local)
        return [
            WriteItem(
                index=MetadataIndex(fqn, chunk.offsets),
                type=WriteItemType.SHARD,
                tensor_data=TensorWriteData(chunk=chunk, properties=properties, size=self.size()),
            )
            for chunk, _ in self._chunks()
        ]

    def __get_tensor_shard__(self, index: MetadataIndex) -> Tensor:
        for chunk, places in self._chunks():
            if chunk.offsets == index.offset:
                return self.local[tuple(slice(*place) for place in places)]
        raise ValueError(f"this rank has no chunk of `{index.fqn}` at {index.offset}")


def _with_places(intervals: tuple[Interval, ...]) -> list[tuple[Interval, Interval]]:
    """Global intervals with where they lie in the local tensor."""
    found, place = [], 0
    for start, stop in intervals:
        found.append(((start, stop), (place, place + stop - start)))
        place += stop - start
    return found
