"""Interval arithmetic, against positions written out."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributed.tensor.placement_types import _StridedShard

from planc.flow import pieces as p

SIZES = st.integers(0, 40)
RANKS = st.integers(1, 6)


def positions(pieces: p.Pieces) -> list[int]:
    return [position for start, stop in pieces for position in range(start, stop)]


@settings(deadline=None)
@given(SIZES, RANKS)
def test_chunks_are_those_of_torch(size: int, ranks: int) -> None:
    expected = [chunk.tolist() for chunk in torch.arange(size).chunk(ranks)] if size else []
    found = [positions(p.chunk(size, ranks, rank)) for rank in range(ranks)]
    assert [held for held in found if held] == [held for held in expected if held]


@settings(deadline=None)
@given(SIZES, RANKS, st.integers(1, 4))
def test_strided_shards_are_those_of_torch(size: int, ranks: int, parts: int) -> None:
    shards, _ = _StridedShard(0, split_factor=parts)._split_tensor(torch.arange(size), ranks, with_padding=False)
    assert [positions(p.strided(size, ranks, rank, parts)) for rank in range(ranks)] == [s.tolist() for s in shards]


@settings(deadline=None)
@given(st.lists(st.tuples(SIZES, SIZES)), st.integers(1, 5))
def test_scaling_is_undone_by_division(intervals: list[tuple[int, int]], factor: int) -> None:
    held = p.joined((min(i), max(i)) for i in intervals)
    assert p.divided(p.scaled(held, factor), factor) == held


@settings(deadline=None)
@given(st.lists(st.tuples(SIZES, SIZES)), SIZES, SIZES)
def test_a_local_slice_takes_the_positions_of_its_indices(
    intervals: list[tuple[int, int]], start: int, stop: int
) -> None:
    held = p.joined((min(i), max(i)) for i in intervals)
    assert positions(p.local_slice(held, start, stop)) == positions(held)[start:stop]


def test_a_cut_through_a_group_divides_not() -> None:
    assert p.divided(((0, 6),), 4) is None
    assert p.divided(((4, 12),), 4) == ((1, 3),)
