"""How a tensor is made of stored ones, as a tree; any region of it can be read without reading the rest.

A node takes the region that is wanted to regions of its parts, reads those, and puts them together. At the leaves are
names of stored tensors. Each node has the shape of the whole tensor.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Protocol

import torch
from torch import Tensor

from planc.program.placements import Interval, Region, whole

# (name of a stored tensor, region of it) -> that part
Reader = Callable[[str, Region], Tensor]
# More separate runs of one dim than this are read as one block from which rows are picked.
MOST_RUNS = 256


class Expression(Protocol):
    """A tensor made of stored ones. Immutable."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The global shape."""

    @property
    def leaves(self) -> tuple[str, ...]:
        """The names of the stored tensors in it."""

    def read(self, region: Region, reader: Reader) -> Tensor:
        """The part of the tensor that `region` names; at the leaves `reader` reads."""


@dataclass(frozen=True)
class Leaf:
    """A stored tensor."""

    name: str
    shape: tuple[int, ...]

    @property
    def leaves(self) -> tuple[str, ...]:
        return (self.name,)

    def read(self, region: Region, reader: Reader) -> Tensor:
        return reader(self.name, region)


@dataclass(frozen=True)
class Concatenation:
    """`parts` one after the other along `dim`, as `torch.cat`."""

    parts: tuple[Expression, ...]
    dim: int

    @property
    def shape(self) -> tuple[int, ...]:
        shape = list(self.parts[0].shape)
        shape[self.dim] = sum(part.shape[self.dim] for part in self.parts)
        return tuple(shape)

    @property
    def leaves(self) -> tuple[str, ...]:
        return tuple(name for part in self.parts for name in part.leaves)

    def read(self, region: Region, reader: Reader) -> Tensor:
        blocks, offset = [], 0
        for part in self.parts:
            size = part.shape[self.dim]
            if wanted := clipped(region.dims[self.dim], offset, offset + size):
                blocks.append(part.read(with_dim(region, self.dim, wanted), reader))
            offset += size
        if not blocks:
            return self.parts[0].read(with_dim(region, self.dim, ()), reader)
        return blocks[0] if len(blocks) == 1 else torch.cat(blocks, self.dim)


@dataclass(frozen=True)
class Narrowing:
    """`length` entries of `dim` from `start` on, as `torch.narrow`."""

    part: Expression
    dim: int
    start: int
    length: int

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.part.shape[: self.dim], self.length, *self.part.shape[self.dim + 1 :])

    @property
    def leaves(self) -> tuple[str, ...]:
        return self.part.leaves

    def read(self, region: Region, reader: Reader) -> Tensor:
        moved = tuple((start + self.start, stop + self.start) for start, stop in region.dims[self.dim])
        return self.part.read(with_dim(region, self.dim, moved), reader)


@dataclass(frozen=True)
class Permutation:
    """Dims in another order, as `Tensor.permute(dims)`."""

    part: Expression
    dims: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.part.shape[dim] for dim in self.dims)

    @property
    def leaves(self) -> tuple[str, ...]:
        return self.part.leaves

    def read(self, region: Region, reader: Reader) -> Tensor:
        back = {dim: region.dims[place] for place, dim in enumerate(self.dims)}
        return self.part.read(Region(tuple(back[dim] for dim in range(len(back)))), reader).permute(self.dims)


@dataclass(frozen=True)
class Merging:
    """`count` dims from `dim` on as one, as `Tensor.flatten`."""

    part: Expression
    dim: int
    count: int

    @property
    def _sizes(self) -> tuple[int, ...]:
        return self.part.shape[self.dim : self.dim + self.count]

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.part.shape[: self.dim], prod(self._sizes), *self.part.shape[self.dim + self.count :])

    @property
    def leaves(self) -> tuple[str, ...]:
        return self.part.leaves

    def read(self, region: Region, reader: Reader) -> Tensor:
        before, after = region.dims[: self.dim], region.dims[self.dim + 1 :]
        boxes = [box for interval in region.dims[self.dim] for box in boxes_of(interval, self._sizes)]
        wanted: list[tuple[tuple[Interval, ...], ...]] = [tuple((side,) for side in box) for box in boxes]
        wanted = wanted or [((),) * self.count]
        blocks = [self.part.read(Region((*before, *box, *after)), reader) for box in wanted]
        end = self.dim + self.count
        flat = [b.reshape(*b.shape[: self.dim], prod(b.shape[self.dim : end]), *b.shape[end:]) for b in blocks]
        return flat[0] if len(flat) == 1 else torch.cat(flat, self.dim)


@dataclass(frozen=True)
class Splitting:
    """`dim` as several of `sizes`, as `Tensor.unflatten`."""

    part: Expression
    dim: int
    sizes: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.part.shape[: self.dim], *self.sizes, *self.part.shape[self.dim + 1 :])

    @property
    def leaves(self) -> tuple[str, ...]:
        return self.part.leaves

    def read(self, region: Region, reader: Reader) -> Tensor:
        count = len(self.sizes)
        before, inner, after = (
            region.dims[: self.dim],
            region.dims[self.dim : self.dim + count],
            region.dims[self.dim :],
        )
        runs = joined(runs_of(inner, self.sizes))
        picked = None
        if len(runs) > MOST_RUNS:
            picked = torch.cat([torch.arange(start, stop) for start, stop in runs]) - runs[0][0]
            runs = ((runs[0][0], runs[-1][1]),)
        block = self.part.read(Region((*before, runs, *after[count:])), reader)
        if picked is not None:
            block = block.index_select(self.dim, picked.to(block.device))
        return block.reshape(region.shape)


@dataclass(frozen=True)
class Reordered:
    """The same elements under another shape that adds or drops dims of size 1."""

    part: Expression
    shape: tuple[int, ...]

    @property
    def leaves(self) -> tuple[str, ...]:
        return self.part.leaves

    def read(self, region: Region, reader: Reader) -> Tensor:
        if region.count == 0:
            return nothing(self.part, region, reader)
        kept = iter([intervals for intervals, size in zip(region.dims, self.shape, strict=True) if size != 1])
        inner = Region(tuple(((0, 1),) if size == 1 else next(kept) for size in self.part.shape))
        return self.part.read(inner, reader).reshape(region.shape)


def reshaped(part: Expression, shape: Sequence[int]) -> Expression:
    """`part` under another shape of as many elements, row-major as `Tensor.reshape`."""
    target = tuple(shape)
    if part.shape == target:
        return part
    if 0 in target:
        return Empty(part, target)
    bare = tuple(size for size in part.shape if size != 1)
    result: Expression = part if bare == part.shape else Reordered(part, bare)
    for dim, (sources, targets) in enumerate_groups(bare, tuple(size for size in target if size != 1)):
        if sources > 1:
            result = Merging(result, dim, sources)
        if len(targets) > 1:
            result = Splitting(result, dim, targets)
    return result if result.shape == target else Reordered(result, target)


@dataclass(frozen=True)
class Empty:
    """A tensor without elements."""

    part: Expression
    shape: tuple[int, ...]

    @property
    def leaves(self) -> tuple[str, ...]:
        return self.part.leaves

    def read(self, region: Region, reader: Reader) -> Tensor:
        return nothing(self.part, region, reader)


def nothing(part: Expression, region: Region, reader: Reader) -> Tensor:
    """A region without elements, in the dtype of `part`."""
    return part.read(Region(((),) * len(part.shape)), reader).new_empty(region.shape)


def enumerate_groups(
    source: tuple[int, ...], target: tuple[int, ...]
) -> Iterator[tuple[int, tuple[int, tuple[int, ...]]]]:
    """The smallest runs of dims (none of size 0 or 1) that hold the same elements on both sides.

    Yields the place among `target`'s dims, how many dims of `source` and which sizes of `target` the run has.
    """
    here = there = 0
    while here < len(source):
        first_here, first_there = here, there
        left, right = source[here], target[there]
        here, there = here + 1, there + 1
        while left != right:
            if left < right:
                left, here = left * source[here], here + 1
            else:
                right, there = right * target[there], there + 1
        yield first_there, (here - first_here, target[first_there:there])


def boxes_of(interval: Interval, sizes: Sequence[int]) -> Iterator[tuple[Interval, ...]]:
    """The flat row-major `interval` of a block of `sizes` as boxes, in order."""
    start, stop = interval
    if start >= stop:
        return
    if len(sizes) == 1:
        yield (interval,)
        return
    inner = prod(sizes[1:])
    first, last = start // inner, stop // inner
    if first == last:
        yield from _row(first, (start - first * inner, stop - first * inner), sizes)
        return
    if start % inner:
        yield from _row(first, (start % inner, inner), sizes)
        first += 1
    if first < last:
        yield ((first, last), *((0, size) for size in sizes[1:]))
    if stop % inner:
        yield from _row(last, (0, stop % inner), sizes)


def _row(row: int, interval: Interval, sizes: Sequence[int]) -> Iterator[tuple[Interval, ...]]:
    return (((row, row + 1), *box) for box in boxes_of(interval, sizes[1:]))


def runs_of(dims: Sequence[tuple[Interval, ...]], sizes: Sequence[int]) -> Iterator[Interval]:
    """The product of `dims`, a region of a block of `sizes`, as flat row-major runs in order."""
    depth = len(sizes) - 1
    while depth > 0 and dims[depth] == ((0, sizes[depth]),):
        depth -= 1
    inner = prod(sizes[depth + 1 :])
    rows = [[index for start, stop in intervals for index in range(start, stop)] for intervals in dims[:depth]]
    if any(not intervals for intervals in dims):
        return
    for place in product(*rows):
        offset = 0
        for index, size in zip(place, sizes[:depth], strict=True):
            offset = offset * size + index
        for start, stop in dims[depth]:
            yield (offset * sizes[depth] + start) * inner, (offset * sizes[depth] + stop) * inner


def joined(intervals: Iterator[Interval]) -> tuple[Interval, ...]:
    """Ascending intervals with neighbours made one."""
    found: list[Interval] = []
    for start, stop in intervals:
        if found and found[-1][1] == start:
            found[-1] = (found[-1][0], stop)
        else:
            found.append((start, stop))
    return tuple(found)


def clipped(intervals: Sequence[Interval], start: int, stop: int) -> tuple[Interval, ...]:
    """What of `intervals` lies in `[start, stop)`, counted from `start`."""
    pairs = ((max(first, start) - start, min(last, stop) - start) for first, last in intervals)
    return tuple((first, last) for first, last in pairs if first < last)


def with_dim(region: Region, dim: int, intervals: tuple[Interval, ...]) -> Region:
    """`region` with other intervals on `dim`."""
    return Region((*region.dims[:dim], intervals, *region.dims[dim + 1 :]))


def read_whole(expression: Expression, reader: Reader) -> Tensor:
    """All of a tensor."""
    return expression.read(whole(expression.shape), reader)
