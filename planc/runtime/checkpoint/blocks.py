"""Tensors whose values stand in blocks of stored codes, and are read block by block."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from planc.program.placements import Interval, Region
from planc.runtime.checkpoint.expressions import Expression, Reader, joined


@dataclass(frozen=True)
class Axis:
    """Which dim of the result a dim of a part follows, and how many of its elements one block takes up."""

    dim: int
    elements: int


@dataclass(frozen=True)
class Part:
    """A tensor that blocks are made of: for each of its dims the axis that it follows; None where it is read whole."""

    expression: Expression
    axes: tuple[Axis | None, ...]

    def region(self, blocks: Sequence[Sequence[Interval]]) -> Region:
        """What of it the `blocks` of each dim of the result are made of."""
        return Region(tuple(self._intervals(place, axis, blocks) for place, axis in enumerate(self.axes)))

    def _intervals(self, place: int, axis: Axis | None, blocks: Sequence[Sequence[Interval]]) -> tuple[Interval, ...]:
        size = self.expression.shape[place]
        if axis is None:
            return ((0, size),)
        # The last block may be cut short by the tensor's end.
        return tuple((start * axis.elements, min(stop * axis.elements, size)) for start, stop in blocks[axis.dim])


@dataclass(frozen=True)
class Blockwise:
    """What `function` makes of `parts`, in blocks of `sizes` elements on each dim of the result.

    `function` takes whole blocks of the parts, as many as there are, and gives those of the result. A region reads the
    blocks that it lies in, and no others.
    """

    parts: tuple[Part, ...]
    shape: tuple[int, ...]
    sizes: tuple[int, ...]
    function: Callable[..., Tensor]

    @property
    def leaves(self) -> tuple[str, ...]:
        return tuple(name for part in self.parts for name in part.expression.leaves)

    def read(self, region: Region, reader: Reader) -> Tensor:
        blocks = [blocks_of(dim, size) for dim, size in zip(region.dims, self.sizes, strict=True)]
        inputs = [part.expression.read(part.region(blocks), reader) for part in self.parts]
        if region.count == 0:
            inputs = [torch.zeros(shape, dtype=t.dtype) for t, shape in zip(inputs, self._one_block(), strict=True)]
            return self.function(*inputs).new_empty(region.shape)
        result = self.function(*inputs)
        for dim, (wanted, size) in enumerate(zip(region.dims, self.sizes, strict=True)):
            held = [(start * size, stop * size) for start, stop in blocks[dim]]
            pieces = [result.narrow(dim, place(held, start), stop - start) for start, stop in wanted]
            result = pieces[0] if len(pieces) == 1 else torch.cat(pieces, dim)
        return result

    def _one_block(self) -> list[tuple[int, ...]]:
        first = [((0, 1),)] * len(self.shape)
        return [part.region(first).shape for part in self.parts]


def blocks_of(intervals: Sequence[Interval], size: int) -> tuple[Interval, ...]:
    """The blocks of `size` that ascending `intervals` lie in, each once."""
    found: list[Interval] = []
    for start, stop in intervals:
        first, last = start // size, -(-stop // size)
        first = max(first, found[-1][1]) if found else first
        if first < last:
            found.append((first, last))
    return joined(iter(found))


def place(intervals: Sequence[Interval], index: int) -> int:
    """Where `index` stands among the elements of `intervals`, one after the other."""
    offset = 0
    for start, stop in intervals:
        if start <= index < stop:
            return offset + index - start
        offset += stop - start
    raise IndexError(index)
