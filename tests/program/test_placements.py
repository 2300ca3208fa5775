"""Regions of parameters: exact covers, and the same as torch's own chunking."""

import itertools
from math import prod

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed.fsdp._fully_shard._fsdp_common import _chunk_with_empty
from torch.distributed.tensor.placement_types import Shard as TorchShard
from torch.distributed.tensor.placement_types import _StridedShard

from planc.layouts.placement import Placement, Replicate, Shard, StridedShard
from planc.program.placements import Region, chunk, whole

SHAPES = st.lists(st.integers(0, 9), min_size=1, max_size=3).map(tuple)
RANKS = st.integers(1, 5)


@st.composite
def sharded(draw: st.DrawFn) -> tuple[tuple[int, ...], Placement, int, int]:
    """A shape, a placement of it, the ranks of that axis, and the ranks that FSDP shards over on top."""
    shape = draw(SHAPES)
    dim = draw(st.integers(0, len(shape) - 1))
    parts = draw(st.integers(1, 4))
    placement = draw(st.sampled_from([Replicate(), Shard(dim), StridedShard(dim, parts)]))
    return shape, placement, draw(RANKS), draw(RANKS)


def regions(case: tuple[tuple[int, ...], Placement, int, int]) -> dict[tuple[int, int], Region]:
    shape, placement, ranks, fsdp = case
    return {
        (rank, shard): whole(shape).shard(placement, ranks, rank).shard(Shard(0), fsdp, shard)
        for rank in range(ranks)
        for shard in range(fsdp)
    }


def take(tensor: torch.Tensor, region: Region) -> torch.Tensor:
    for dim, intervals in enumerate(region.dims):
        index = [i for start, stop in intervals for i in range(start, stop)]
        tensor = tensor.index_select(dim, torch.tensor(index, dtype=torch.long))
    return tensor


@given(sharded())
def test_all_ranks_together_hold_every_element_the_expected_number_of_times(
    case: tuple[tuple[int, ...], Placement, int, int],
) -> None:
    shape, placement, ranks, _ = case
    tensor = torch.arange(prod(shape)).reshape(shape)
    held = torch.cat([take(tensor, region).flatten() for region in regions(case).values()])
    copies = ranks if isinstance(placement, Replicate) else 1
    assert torch.equal(held.bincount(minlength=tensor.numel()), torch.full((tensor.numel(),), copies))


@given(sharded())
def test_every_shard_is_torchs(case: tuple[tuple[int, ...], Placement, int, int]) -> None:
    """Tensor parallelism as `distribute_tensor` splits, FSDP as `fully_shard` chunks the local tensor on top."""
    shape, placement, ranks, fsdp = case
    tensor = torch.arange(prod(shape)).reshape(shape)
    for rank, local in enumerate(torch_shards(tensor, placement, ranks)):
        for shard, expected in enumerate(_chunk_with_empty(local, fsdp, dim=0)):
            region = regions(case)[rank, shard]
            assert region.count == expected.numel()
            if expected.numel():
                assert region.shape == tuple(expected.shape)
            assert torch.equal(take(tensor, region).flatten(), expected.flatten())


def torch_shards(tensor: torch.Tensor, placement: Placement, ranks: int) -> list[torch.Tensor]:
    if isinstance(placement, Shard):
        return TorchShard(placement.dim)._split_tensor(tensor, ranks, with_padding=False)[0]
    if isinstance(placement, StridedShard):
        strided = _StridedShard(placement.dim, split_factor=placement.split_factor)
        return strided._split_tensor(tensor, ranks, with_padding=False)[0]
    return [tensor] * ranks


@given(st.integers(0, 50), st.integers(1, 12))
def test_chunks_are_torchs(size: int, count: int) -> None:
    bounds = [chunk(size, count, index) for index in range(count)]
    widths = [t.numel() for t in torch.arange(size).chunk(count)] if size else []
    assert [stop - start for start, stop in bounds if stop > start] == [w for w in widths if w]
    assert bounds[0][0] == 0
    assert bounds[-1][1] == size
    assert all(before[1] == after[0] for before, after in itertools.pairwise(bounds))


@pytest.mark.parametrize(
    ("placement", "expected"),
    [
        (Shard(0), ((4, 8),)),
        (StridedShard(0, 2), ((2, 4), (6, 8))),
        (StridedShard(0, 1), ((4, 8),)),
        (StridedShard(0, 10**12), ()),
        (Replicate(), ((0, 8),)),
    ],
)
def test_intervals_of_the_second_of_two_ranks(placement: Placement, expected: tuple[tuple[int, int], ...]) -> None:
    assert whole((8, 3)).shard(placement, 2, 1).dims == (expected, ((0, 3),))
