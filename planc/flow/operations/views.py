"""Views: the same numbers under another shape. Where a shard's local shape doesn't fit the view, a head is cut."""

from collections.abc import Sequence
from math import prod

from planc.flow.pieces import Pieces, divided, joined, length, scaled
from planc.flow.problems import CantFollowError, Kind, MismatchError
from planc.flow.step import Shape, Step, operation, sizes
from planc.flow.types import Fill, PartialSum, Sharded, Type

# Views that repeat intervals for more dims in front than this are not followed.
_MOST_REPEATS = 512


@operation("view", "reshape", "_unsafe_view")
def view(step: Step) -> Type:
    """`view(sizes)`: numbers off a shape adapt to the shard, those of the config don't."""
    return _reshaped(step, [_filled(step, sizes(step.op.arguments[1:]), rank) for rank in range(step.ranks)])


@operation("flatten")
def flatten(step: Step) -> Type:
    """`flatten(start, end)` adapts to the shard."""
    count = len(step.shape(step.inputs[0]))
    start = step.dim(step.argument(1, "start_dim", 0), count)
    end = step.dim(step.argument(2, "end_dim", -1), count)
    shapes = [step.local_shape(step.inputs[0], rank) for rank in range(step.ranks)]
    return _reshaped(step, [(*s[:start], prod(s[start : end + 1]), *s[end + 1 :]) for s in shapes])


@operation("unflatten")
def unflatten(step: Step) -> Type:
    """`unflatten(dim, sizes)`."""
    dim = step.dim(step.argument(1, "dim"), len(step.shape(step.inputs[0])))
    arguments = sizes([step.argument(2, "sizes")])
    shapes = []
    for rank in range(step.ranks):
        shape = step.local_shape(step.inputs[0], rank)
        inner = step.numbers(arguments, rank)
        shapes.append((*shape[:dim], *_infer(step, inner, shape[dim]), *shape[dim + 1 :]))
    return _reshaped(step, shapes)


def _filled(step: Step, arguments: Sequence[object], rank: int) -> Shape:
    return _infer(step, step.numbers(arguments, rank), prod(step.local_shape(step.inputs[0], rank)))


def _infer(step: Step, shape: list[int], count: int) -> Shape:
    """`shape` with -1 replaced. Raises MismatchError where `count` numbers don't fit it."""
    known = prod(size for size in shape if size != -1)
    if -1 in shape and known and count % known == 0:
        shape = [count // known if size == -1 else size for size in shape]
    if -1 in shape or prod(shape) != count:
        raise _cut(step, f"{count} numbers of a rank don't fit the view as {tuple(shape)}")
    return tuple(shape)


def _cut(step: Step, detail: str) -> MismatchError:
    return step.mismatch(Kind.HEAD_CUT, detail, step.inputs[0])


def _reshaped(step: Step, local: list[Shape]) -> Type:
    source, target = step.shape(step.inputs[0]), step.output_shape
    kind = step.type(step.inputs[0])
    if isinstance(kind, PartialSum):
        return kind
    if not isinstance(kind, Sharded):
        return Fill(tuple(local)) if any(shape != target for shape in local) else kind
    front, back = _common(source, target, kind.dim)
    inner, outer = source[front : len(source) - back], target[front : len(target) - back]
    if not inner[kind.dim - front : kind.dim - front + 1]:
        raise CantFollowError("its view moves the sharded dim")
    group = _group(inner, outer, kind.dim - front)
    if group is None:
        raise CantFollowError("its view mixes dims")
    (in_start, in_stop), (out_start, out_stop) = group
    flat = [_flat(pieces, inner[in_start:in_stop], kind.dim - front - in_start) for pieces in kind.pieces]
    dims = outer[out_start:out_stop]
    for dim in range(len(dims)):
        pieces = [_unflat(intervals, dims, dim) for intervals in flat]
        if all(piece is not None for piece in pieces):
            place = front + out_start + dim
            result = Sharded(place, tuple(piece for piece in pieces if piece is not None), kind.origin)
            _verify(step, result, target, local)
            return result
    raise _cut(step, f"shards of {kind.sizes[0]} of {source[kind.dim]} cut through the groups of its view as {target}")


def _common(source: Shape, target: Shape, dim: int) -> tuple[int, int]:
    """How many dims in front and at the back are the same, not counting the sharded one."""
    front = 0
    while front < min(dim, len(target)) and source[front] == target[front]:
        front += 1
    back = 0
    while back < min(len(source) - dim - 1, len(target) - front) and source[-1 - back] == target[-1 - back]:
        back += 1
    return front, back


def _group(source: Shape, target: Shape, dim: int) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """The smallest runs of dims of equal products, one of them with `dim` of the source."""
    i = j = 0
    while i < len(source):
        start_i, start_j = i, j
        left, right = source[i], target[j] if j < len(target) else 1
        i, j = i + 1, j + 1
        while left != right and (i < len(source) or j < len(target)):
            if left < right and i < len(source):
                left, i = left * source[i], i + 1
            elif j < len(target):
                right, j = right * target[j], j + 1
            else:
                return None
        if left != right:
            return None
        if start_i <= dim < i:
            last = i >= len(source)
            return (start_i, i), (start_j, len(target) if last else j)
    return None


def _flat(pieces: Pieces, dims: Shape, dim: int) -> Pieces:
    """Positions in the product of `dims`, where `pieces` of one of them are held."""
    repeats, after = prod(dims[:dim]), prod(dims[dim + 1 :])
    if repeats > _MOST_REPEATS:
        raise CantFollowError("its view merges the sharded dim with others in front")
    inner = scaled(pieces, after)
    step = dims[dim] * after
    return joined((start + n * step, stop + n * step) for n in range(repeats) for start, stop in inner)


def _unflat(intervals: Pieces, dims: Shape, dim: int) -> Pieces | None:
    """The inverse of `_flat`, or None where the positions aren't pieces of `dim` alone."""
    repeats, after = prod(dims[:dim]), prod(dims[dim + 1 :])
    if repeats > _MOST_REPEATS:
        return None
    found = divided(intervals, after)
    if found is None:
        return None
    if repeats == 1:
        return found
    step = dims[dim]
    first = joined((start, min(stop, step)) for start, stop in found if start < step)
    whole = joined((start + n * step, stop + n * step) for n in range(repeats) for start, stop in first)
    return first if whole == found else None


def _verify(step: Step, kind: Sharded, target: Shape, local: list[Shape]) -> None:
    for rank, shape in enumerate(local):
        expected = (*target[: kind.dim], length(kind.pieces[rank]), *target[kind.dim + 1 :])
        if shape != expected:
            raise _cut(step, f"a rank's view has the shape {shape}, its shard {expected}")


@operation("transpose", "swapaxes")
def transpose(step: Step) -> Type:
    """Two dims change places."""
    count = len(step.shape(step.inputs[0]))
    first, second = step.dim(step.argument(1, "dim0"), count), step.dim(step.argument(2, "dim1"), count)
    order = list(range(count))
    order[first], order[second] = second, first
    return _permuted(step, order)


@operation("permute", "movedim")
def permute(step: Step) -> Type:
    """Dims in another order."""
    if step.op.name == "movedim":
        raise CantFollowError("`movedim`")
    count = len(step.shape(step.inputs[0]))
    return _permuted(step, [step.dim(item, count) for item in sizes(step.op.arguments[1:])])


@operation("t", "T", "mT")
def turned(step: Step) -> Type:
    """The last two dims change places (all of them for `T`)."""
    count = len(step.shape(step.inputs[0]))
    if step.op.name == "mT" and count > 2:
        return _permuted(step, [*range(count - 2), count - 1, count - 2])
    return _permuted(step, list(reversed(range(count))))


def _permuted(step: Step, order: list[int]) -> Type:
    kind = step.type(step.inputs[0])
    if isinstance(kind, Sharded):
        return Sharded(order.index(kind.dim), kind.pieces, kind.origin)
    if isinstance(kind, Fill):
        return Fill(tuple(tuple(shape[dim] for dim in order) for shape in kind.shapes))
    return kind


@operation("unsqueeze")
def unsqueeze(step: Step) -> Type:
    """A dim of one is added."""
    dim = step.dim(step.argument(1, "dim"), len(step.output_shape))
    kind = step.type(step.inputs[0])
    if isinstance(kind, Sharded):
        return Sharded(kind.dim + (dim <= kind.dim), kind.pieces, kind.origin)
    if isinstance(kind, Fill):
        return Fill(tuple((*shape[:dim], 1, *shape[dim:]) for shape in kind.shapes))
    return kind


@operation("squeeze")
def squeeze(step: Step) -> Type:
    """Dims of one are dropped."""
    shape = step.shape(step.inputs[0])
    argument = step.argument(1, "dim")
    if argument is None:
        dropped = {dim for dim, size in enumerate(shape) if size == 1}
    else:
        dim = step.dim(argument, len(shape))
        dropped = {dim} if shape[dim] == 1 else set()
    kind = step.type(step.inputs[0])
    if isinstance(kind, Sharded):
        if any(size == 1 for size in kind.sizes):
            raise CantFollowError("`squeeze` may drop a shard of one")
        return Sharded(kind.dim - sum(dim < kind.dim for dim in dropped), kind.pieces, kind.origin)
    if isinstance(kind, Fill):
        return Fill(tuple(tuple(s for dim, s in enumerate(local) if dim not in dropped) for local in kind.shapes))
    return kind


@operation("expand", "expand_as", "broadcast_to")
def expand(step: Step) -> Type:
    """Dims of one are repeated without a copy."""
    kind = step.type(step.inputs[0])
    target = step.output_shape
    if step.op.name == "expand_as":
        other = step.inputs[1]
        local = [step.local_shape(other, rank) for rank in range(step.ranks)]
    else:
        local = [_expanded(step, rank) for rank in range(step.ranks)]
    if isinstance(kind, Sharded):
        dim = kind.dim + len(target) - len(step.shape(step.inputs[0]))
        result = Sharded(dim, kind.pieces, kind.origin)
        if any(shape[dim] not in (length(result.pieces[rank]), -1) for rank, shape in enumerate(local)):
            raise step.mismatch(Kind.SHARDS_DISAGREE, f"a shard is expanded to {local[0]}")
        return result
    if isinstance(kind, PartialSum):
        return kind
    return kind if all(shape == target for shape in local) else Fill(tuple(local))


@operation("view_as", "reshape_as")
def view_as(step: Step) -> Type:
    """A view as another value is shaped."""
    return _reshaped(step, [step.local_shape(step.inputs[1], rank) for rank in range(step.ranks)])


@operation("view_as_complex", "view_as_real")
def complex_view(step: Step) -> Type:
    """Pairs of the last dim become numbers, or the reverse."""
    kind = step.type(step.inputs[0])
    if isinstance(kind, Sharded) and kind.dim == len(step.shape(step.inputs[0])) - 1:
        raise CantFollowError("numbers with two parts over a shard")
    if isinstance(kind, Fill):
        raise CantFollowError("a part of a constant")
    return kind


def _expanded(step: Step, rank: int) -> Shape:
    arguments = step.numbers(sizes(step.op.arguments[1:]), rank)
    shape = step.local_shape(step.inputs[0], rank)
    padded = (1,) * (len(arguments) - len(shape)) + shape
    if any(size not in (-1, own) and own != 1 for own, size in zip(padded, arguments, strict=True)):
        raise step.mismatch(Kind.SHARDS_DISAGREE, f"{shape} can't be expanded to {tuple(arguments)}")
    return tuple(own if size == -1 else size for own, size in zip(padded, arguments, strict=True))
