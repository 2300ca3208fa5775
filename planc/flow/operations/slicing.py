"""Slices and splits: what a rank takes of its part must be of what one process takes of the whole."""

from collections.abc import Sequence

from planc.flow.pieces import Pieces, length, local_slice, shifted, within
from planc.flow.problems import CantFollowError, Kind
from planc.flow.step import Shape, Step, is_ellipsis, is_slice, is_value, operation
from planc.flow.types import WHOLE, Fill, PartialSum, Sharded, Type
from planc.model.dataflow import Argument

# Splits into more parts than this are not followed.
_MOST_PARTS = 4096


@operation("getitem")
def getitem(step: Step) -> Type:
    """`x[index]`."""
    kind = step.type(step.inputs[0])
    index = _index(step)
    return _indexed(step, kind, index)


def _index(step: Step) -> list[Argument]:
    argument = step.op.arguments[1]
    single = is_slice(argument) or is_value(argument) or is_ellipsis(argument) or not isinstance(argument, list)
    return [argument] if single or (isinstance(argument, list) and argument[:1] == ["n"]) else list(argument)


def _indexed(step: Step, kind: Type, index: list[Argument]) -> Type:
    shape = step.shape(step.inputs[0])
    if any(not isinstance(step.type(value), type(WHOLE)) for item in index if is_value(item) for value in [item[1]]):
        raise CantFollowError("an index that isn't whole")
    full = _spelled_out(index, len(shape))
    if isinstance(kind, Fill):
        return _indexed_fill(step, kind, full)
    if not isinstance(kind, Sharded):
        _check_whole(step, full, shape)
        return kind
    source, target, found = 0, 0, None
    tensors = [position for position, item in enumerate(full) if is_value(item)]
    if len(tensors) > 1 and tensors != list(range(tensors[0], tensors[-1] + 1)):
        raise CantFollowError("several indices apart")
    for position, item in enumerate(full):
        if source == kind.dim and item is not None:
            found = (target, item)
        if item is None:
            target += 1
        elif is_slice(item):
            source, target = source + 1, target + 1
        elif is_value(item):
            source += 1
            target += max(len(step.shape(i[1])) for i in full if is_value(i)) if position == tensors[0] else 0
        else:
            source += 1
    if found is None:
        raise CantFollowError("its index")
    dim, item = found
    if not is_slice(item):
        raise step.mismatch(Kind.NEEDS_WHOLE, f"it picks single places of {shape[kind.dim]}, and a rank has a part")
    return _sliced(step, kind, item, dim)


def _spelled_out(index: list[Argument], count: int) -> list[Argument]:
    """The index with a slice for every dim that it leaves alone."""
    whole = ["s", None, None, None]
    used = sum(item is not None and not is_ellipsis(item) for item in index)
    rest = [whole] * (count - used)
    at = next((position for position, item in enumerate(index) if is_ellipsis(item)), None)
    return [*index, *rest] if at is None else [*index[:at], *rest, *index[at + 1 :]]


def _check_whole(step: Step, index: list[Argument], shape: Shape) -> None:
    """Numbers off a shard's shape would take something else of a whole value."""
    dims = [item for item in index if item is not None]
    for item, size in zip(dims, shape, strict=False):
        if is_slice(item):
            ranges = {tuple(_bounds(step, item, size, rank)) for rank in (None, *range(step.ranks))}
            if len(ranges) > 1:
                raise CantFollowError("a slice of a whole value by the size of a shard")


def _bounds(step: Step, item: Argument, size: int, rank: int | None) -> tuple[int, int, int]:
    numbers = [None if part is None else step.number(part, rank) for part in item[1:]]
    return slice(*numbers).indices(size)


def _sliced(step: Step, kind: Sharded, item: Argument, dim: int) -> Type:
    """A slice of the sharded dim: what each rank takes must be of what one process would take."""
    size = step.shape(step.inputs[0])[kind.dim]
    start, stop, stride = _bounds(step, item, size, None)
    taken = []
    for rank, pieces in enumerate(kind.pieces):
        low, high, by = _bounds(step, item, length(pieces), rank)
        taken.append(_strided_part(step, pieces, (low, high, by), (start, stop, stride)))
    return Sharded(dim, tuple(taken), kind.origin)


def _strided_part(step: Step, pieces: Pieces, local: tuple[int, int, int], whole: tuple[int, int, int]) -> Pieces:
    (low, high, by), (start, stop, stride) = local, whole
    if by != stride or stride < 1:
        raise CantFollowError("its stride")
    if stride == 1:
        part = local_slice(pieces, low, high)
        if not within(part, start, stop):
            raise step.mismatch(Kind.PACKED_CUT, _crossing(part, start, stop))
        return shifted(part, -start)
    offset = start % stride
    if low % stride != offset or any(first % stride or last % stride for first, last in pieces) or start >= stride:
        raise step.mismatch(Kind.PACKED_CUT, f"every {stride}th feature of a rank's part isn't every {stride}th of all")
    return tuple((first // stride, last // stride) for first, last in pieces)


def _crossing(part: Pieces, start: int, stop: int) -> str:
    held = " + ".join(f"{first}:{last}" for first, last in part)
    return f"one process takes features {start}:{stop}, a rank would take its {held}"


def _indexed_fill(step: Step, kind: Fill, index: list[Argument]) -> Type:
    shapes = []
    for rank, shape in enumerate(kind.shapes):
        out: list[int] = []
        dims = iter(shape)
        for item in index:
            if item is None:
                out.append(1)
            elif is_slice(item):
                out.append(len(range(*_bounds(step, item, next(dims), rank))))
            elif is_value(item):
                raise CantFollowError("a look-up in a part of a constant")
            else:
                next(dims)
        shapes.append(tuple(out))
    return Fill(tuple(shapes))


@operation("setitem")
def setitem(step: Step) -> Type:
    """`x[index] = value`: the whole takes the value's type where it was a constant."""
    target, value = step.type(step.inputs[0]), step.type(step.inputs[-1])
    if isinstance(target, Fill) or _is_constant(step, step.inputs[0]):
        if isinstance(value, Sharded):
            offset = len(step.shape(step.inputs[0])) - len(step.shape(step.inputs[-1]))
            dim = value.dim + offset
            if step.shape(step.inputs[0])[dim] == step.shape(step.inputs[-1])[value.dim]:
                return Sharded(dim, value.pieces, value.origin)
        if not isinstance(value, Sharded):
            return value if not isinstance(target, Fill) or isinstance(value, PartialSum) else target
    if isinstance(target, Sharded) and isinstance(value, Fill | Sharded):
        same = isinstance(value, Fill) or (value.pieces == target.pieces)
        if same:
            return target
    if type(target) is type(value) and not isinstance(target, Sharded):
        return target
    raise CantFollowError(f"{value} written into {target}")


def _is_constant(step: Step, value: int) -> bool:
    producer = step.flow.producers.get(value)
    while producer is not None and producer.name == "setitem":
        return False
    return producer is not None and producer.name in (
        "new_empty",
        "empty",
        "zeros",
        "new_zeros",
        "zeros_like",
        "empty_like",
    )


@operation("chunk", "split", "split_with_sizes", "tensor_split", "unbind")
def split(step: Step) -> Sequence[Type]:
    """Consecutive parts of a dim."""
    kind, shape = step.type(step.inputs[0]), step.shape(step.inputs[0])
    outputs = step.op.outputs
    position = 1 if step.op.name == "unbind" else 2
    dim = step.dim(step.argument(position, "dim", 0), len(shape))
    if isinstance(kind, Fill):
        raise CantFollowError("a split of a part of a constant")
    if not isinstance(kind, Sharded):
        return [kind] * len(outputs)
    if step.op.name == "unbind":
        if kind.dim == dim:
            raise step.mismatch(Kind.NEEDS_WHOLE, f"it takes {shape[dim]} apart, and a rank has {kind.sizes[0]}")
        return [Sharded(kind.dim - (dim < kind.dim), kind.pieces, kind.origin)] * len(outputs)
    if kind.dim != dim:
        return [kind] * len(outputs)
    return _split_shard(step, kind, dim)


def _split_shard(step: Step, kind: Sharded, dim: int) -> Sequence[Type]:
    whole = [step.shape(output)[dim] for output in step.op.outputs]
    parts: list[list[Pieces]] = [[] for _ in whole]
    for rank, pieces in enumerate(kind.pieces):
        widths = _widths(step, length(pieces), rank)
        if len(widths) != len(whole) or sum(widths) != length(pieces):
            raise step.mismatch(
                Kind.PACKED_CUT, f"parts of {whole} features are split off, and a rank has {length(pieces)}"
            )
        start = offset = 0
        for number, (width, full) in enumerate(zip(widths, whole, strict=True)):
            part = local_slice(pieces, start, start + width)
            if not within(part, offset, offset + full):
                raise step.mismatch(Kind.PACKED_CUT, _crossing(part, offset, offset + full))
            parts[number].append(shifted(part, -offset))
            start, offset = start + width, offset + full
    return [Sharded(dim, tuple(part), kind.origin) for part in parts]


def _widths(step: Step, size: int, rank: int) -> list[int]:
    """The widths that a rank of `size` splits into."""
    argument = step.argument(1, "chunks" if step.op.name == "chunk" else "split_size_or_sections")
    if argument is None:
        argument = step.argument(1, "split_size") or step.argument(1, "split_sizes")
    if isinstance(argument, list) and argument[:1] != ["n"]:
        return step.numbers(argument, rank)
    number = step.number(argument, rank)
    if step.op.name == "tensor_split":
        raise CantFollowError("`tensor_split`")
    width = -(-size // number) if step.op.name == "chunk" else number
    if not width or size > width * _MOST_PARTS:
        raise CantFollowError("its parts")
    return [min(width, size - start) for start in range(0, size, width)]
