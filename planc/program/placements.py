"""Which part of every parameter a rank holds: pure arithmetic on the program, with torch's `chunk` sizes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

from planc.ir.operations import ShardParameter, SplitStages, WrapFsdp
from planc.layouts.layout import EXPERT_AXES, Axis, Layout
from planc.layouts.placement import Placement, Replicate, Shard, StridedShard
from planc.model.manifest import Manifest
from planc.program.program import Program

Interval = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Region:
    """The part of a tensor that a rank holds: for each dim the intervals `[start, stop)` of global indices, in order.

    The local tensor is their product, the pieces of a dim one after the other. A dim sharded in packed parts has one
    interval a part; a rank that got nothing has a dim without intervals.
    """

    dims: tuple[tuple[Interval, ...], ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The local shape."""
        return tuple(_length(intervals) for intervals in self.dims)

    @property
    def count(self) -> int:
        """The number of local elements."""
        return prod(self.shape)

    def shard(self, placement: Placement, ranks: int, index: int) -> "Region":
        """What rank `index` of `ranks` holds when this region is sharded further."""
        if isinstance(placement, Shard | StridedShard):
            parts = placement.split_factor if isinstance(placement, StridedShard) else 1
            size = _length(self.dims[placement.dim])
            pieces = tuple(pieces_of(size, parts, ranks, index))
            kept = tuple(i for piece in pieces for i in _select(self.dims[placement.dim], piece))
            return Region((*self.dims[: placement.dim], _join(kept), *self.dims[placement.dim + 1 :]))
        return self


def chunk(size: int, count: int, index: int) -> Interval:
    """Block `index` of `torch.chunk(size, count)`, padded with empty blocks: all but the last ones are equal."""
    width = -(-size // count)
    return min(index * width, size), min((index + 1) * width, size)


def pieces_of(size: int, parts: int, ranks: int, index: int) -> Iterator[Interval]:
    """What rank `index` gets of each of `parts` packed parts (torch's `_StridedShard`): chunk, then chunk each."""
    # Of more parts than there are positions all others are empty.
    parts = min(parts, max(size, 1))
    for part in range(parts):
        start, stop = chunk(size, parts, part)
        first, last = chunk(stop - start, ranks, index)
        yield start + first, start + last


def whole(shape: tuple[int, ...]) -> Region:
    """All of a tensor."""
    return Region(tuple(_join(((0, size),)) for size in shape))


class RankPlacements:
    """Where the parameters of `program` go, rank by rank."""

    def __init__(self, program: Program, manifest: Manifest) -> None:
        self._layout = program.layout
        self._manifest = manifest
        self._sharded: dict[str, list[ShardParameter]] = {}
        self._wrapped: dict[str, WrapFsdp] = {}
        self._stages: SplitStages | None = None
        self._owner = dict(manifest.file.ties)
        for operation in program.operations:
            if isinstance(operation, ShardParameter):
                self._sharded.setdefault(operation.parameter, []).append(operation)
            elif isinstance(operation, WrapFsdp):
                for name in operation.modules:
                    self._wrapped.setdefault(name, operation)
            elif isinstance(operation, SplitStages):
                self._stages = operation

    def on_rank(self, rank: int) -> dict[str, Region]:
        """Every parameter that `rank` holds (of its pipeline stage), tied ones under each of their names."""
        return {name: self.region(name, rank) for name in self._manifest.parameters if self.is_on(name, rank)}

    def is_on(self, parameter: str, rank: int) -> bool:
        """Whether the pipeline stage of `rank` keeps `parameter`."""
        return self._stages is None or stage_keeps(self._stages, parameter, _coordinate(self._layout, "pp", rank))

    def region(self, parameter: str, rank: int) -> Region:
        """What `rank` holds of `parameter`: first the axes of tensor and expert parallelism, then FSDP's on top."""
        parameter = self._owner.get(parameter, parameter)
        region = whole(self._manifest.parameters[parameter][1].shape)
        for operation in self._sharded.get(parameter, ()):
            region = self._along(region, operation.placement, operation.axis, rank)
        group = self.group(parameter)
        return region if group is None else self._along(region, Shard(0), group.axes[-1], rank)

    def placements(self, parameter: str) -> Mapping[Axis, Placement]:
        """The placement on each axis that shards or names `parameter`, in the order of application."""
        parameter = self._owner.get(parameter, parameter)
        found: dict[Axis, Placement] = {op.axis: op.placement for op in self._sharded.get(parameter, ())}
        if (group := self.group(parameter)) is not None:
            found |= {axis: Replicate() for axis in group.axes[:-1]}
            found[group.axes[-1]] = Shard(0)
        return found

    def group(self, parameter: str) -> WrapFsdp | None:
        """The FSDP group that `parameter` is in: that of the innermost wrapped module around it."""
        name = parameter
        while name:
            name = name.rpartition(".")[0]
            if name in self._wrapped:
                return self._wrapped[name]
        return None

    def _along(self, region: Region, placement: Placement, axis: Axis, rank: int) -> Region:
        return region.shard(placement, self._layout.size(axis), _coordinate(self._layout, axis, rank))


def stage_keeps(stages: SplitStages, name: str, stage: int) -> bool:
    """Whether pipeline stage `stage` keeps the module or parameter `name`."""
    prefix = f"{stages.layers}."
    if name.startswith(prefix):
        start, stop = stages.ranges[stage]
        return start <= int(name.removeprefix(prefix).partition(".")[0]) < stop
    ends = [
        end
        for end, modules in ((0, stages.first), (len(stages.ranges) - 1, stages.last))
        if any(name == module or name.startswith(f"{module}.") for module in modules)
    ]
    return not ends or stage in ends


def _coordinate(layout: Layout, axis: Axis, rank: int) -> int:
    if axis in ("efsdp", "ep"):
        return layout.coordinates(rank, EXPERT_AXES)[axis]
    return layout.coordinates(rank)[axis]


def _length(intervals: tuple[Interval, ...]) -> int:
    return sum(stop - start for start, stop in intervals)


def _select(intervals: tuple[Interval, ...], piece: Interval) -> Iterator[Interval]:
    """The global intervals of the local interval `piece`, where `intervals` are laid end to end."""
    offset = 0
    for start, stop in intervals:
        first, last = max(piece[0], offset), min(piece[1], offset + stop - start)
        if first < last:
            yield start + first - offset, start + last - offset
        offset += stop - start


def _join(intervals: tuple[Interval, ...]) -> tuple[Interval, ...]:
    """Neighbouring intervals as one, empty ones left out."""
    joined: list[Interval] = []
    for start, stop in intervals:
        if start == stop:
            continue
        if joined and joined[-1][1] == start:
            joined[-1] = (joined[-1][0], stop)
        else:
            joined.append((start, stop))
    return tuple(joined)
