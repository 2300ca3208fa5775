"""Small models of many kinds, checkpoints of them, and what transformers makes of those."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from planc.layouts.placement import Placement, Shard, StridedShard
from planc.program.placements import Region, whole
from planc.verify.copying.copy import small_copy

# Every way of cutting a tensor that styles and FSDP make, on axes that needn't divide the dims.
CUTS: tuple[tuple[tuple[Placement, int], ...], ...] = (
    ((Shard(0), 2),),
    ((Shard(0), 3),),
    ((Shard(-1), 3),),
    ((StridedShard(0, 2), 2),),
    ((StridedShard(-1, 2), 2), (Shard(0), 3)),
    ((Shard(-2), 2), (Shard(0), 2)),
    ((StridedShard(-2, 2), 3),),
)


def copy_of(model_type: str) -> Any:
    """A small copy of the default model of `model_type`, in float32."""
    from transformers import AutoConfig

    return small_copy(AutoConfig.for_model(model_type), (2,)).model.float()


def regions(shape: tuple[int, ...]) -> Iterator[Region]:
    """Shards of a tensor of `shape`, of every rank, for each of the cuts that its dims allow."""
    for cut in CUTS:
        dims = [placement.dim for placement, _ in cut]  # type: ignore[union-attr]
        if any(dim >= len(shape) or dim < -len(shape) for dim in dims):
            continue
        found = [whole(shape)]
        for placement, ranks in cut:
            positive = _counted_from_the_first(placement, len(shape))
            found = [region.shard(positive, ranks, index) for region in found for index in range(ranks)]
        yield from found


def _counted_from_the_first(placement: Placement, ndim: int) -> Placement:
    if isinstance(placement, StridedShard):
        return StridedShard(placement.dim % ndim, placement.split_factor)
    assert isinstance(placement, Shard)
    return Shard(placement.dim % ndim)


def picked(tensor: Tensor, region: Region) -> Tensor:
    """The region of a tensor in memory, index by index."""
    for dim, intervals in enumerate(region.dims):
        indices = [index for start, stop in intervals for index in range(start, stop)]
        tensor = tensor.index_select(dim, torch.tensor(indices, dtype=torch.long))
    return tensor


def loaded_by_transformers(cls: Any, folder: Path) -> nn.Module:
    """What a single process of transformers loads, weights that it lacks included."""
    model: nn.Module = cls.from_pretrained(folder, dtype="auto")
    return model
