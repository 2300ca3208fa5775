"""Joins and look-ups: along a whole dim, or of parts that are cut alike."""

from planc.flow.operations.elementwise import add_together
from planc.flow.pieces import scaled, shifted
from planc.flow.problems import CantFollowError, Kind
from planc.flow.step import Step, operation
from planc.flow.types import WHOLE, Fill, PartialSum, Sharded, Type


@operation("cat", "concat", "concatenate")
def cat(step: Step) -> Type:
    """One after the other along a dim."""
    kinds = [step.type(value) for value in step.inputs]
    count = len(step.output_shape)
    dim = step.dim(step.argument(1, "dim", 0), count)
    if any(isinstance(kind, PartialSum) for kind in kinds):
        if all(isinstance(kind, PartialSum) for kind in kinds):
            return kinds[0]
        raise step.mismatch(Kind.UNREDUCED, "a partial sum is joined with a complete value")
    shards = [(value, kind) for value, kind in zip(step.inputs, kinds, strict=True) if isinstance(kind, Sharded)]
    if not shards:
        return _fills(step, kinds, dim)
    lead = shards[0][1]
    if lead.dim == dim:
        return _joined(step, kinds, dim)
    for value, kind in zip(step.inputs, kinds, strict=True):
        if isinstance(kind, Fill):
            continue
        if not isinstance(kind, Sharded) or (kind.dim, kind.pieces) != (lead.dim, lead.pieces):
            detail = f"{_said(step, shards[0][0], lead)} is joined with {_said(step, value, lead)}"
            raise step.mismatch(Kind.SHARDS_DISAGREE, detail, shards[0][0], value)
    return lead


def _said(step: Step, value: int, beside: Sharded) -> str:
    """What a rank has of `value`, on the dim on which another value is a shard."""
    kind, size = step.type(value), step.shape(value)[beside.dim]
    if not isinstance(kind, Sharded):
        return f"all {size}"
    return f"a shard of {kind.sizes[0]} of {step.shape(value)[kind.dim]}" + (
        "" if kind.dim == beside.dim else f" on dim {kind.dim}"
    )


def _fills(step: Step, kinds: list[Type], dim: int) -> Type:
    if not any(isinstance(kind, Fill) for kind in kinds):
        return WHOLE
    shapes = []
    for rank in range(step.ranks):
        local = [step.local_shape(value, rank) for value in step.inputs]
        shapes.append((*local[0][:dim], sum(shape[dim] for shape in local), *local[0][dim + 1 :]))
    return Fill(tuple(shapes))


def _joined(step: Step, kinds: list[Type], dim: int) -> Type:
    parts: list[list[tuple[int, int]]] = [[] for _ in range(step.ranks)]
    offset = 0
    for value, kind in zip(step.inputs, kinds, strict=True):
        if not isinstance(kind, Sharded) or kind.dim != dim:
            raise step.mismatch(
                Kind.SHARDS_DISAGREE, f"a part of one input is joined with all of another ({kind})", value
            )
        for rank, pieces in enumerate(kind.pieces):
            parts[rank].extend(shifted(pieces, offset))
        offset += step.shape(value)[dim]
    origin = next(kind.origin for kind in kinds if isinstance(kind, Sharded))
    return Sharded(dim, tuple(tuple(part) for part in parts), origin)


@operation("stack")
def stack(step: Step) -> Type:
    """One beside the other along a new dim."""
    kinds = [step.type(value) for value in step.inputs]
    lead = next((kind for kind in kinds if isinstance(kind, Sharded | PartialSum)), None)
    if lead is None:
        if any(isinstance(kind, Fill) for kind in kinds):
            raise CantFollowError("a stack of parts of constants")
        return WHOLE
    if any(kind != lead for kind in kinds):
        raise step.mismatch(Kind.SHARDS_DISAGREE, "its inputs are cut differently")
    if isinstance(lead, PartialSum):
        return lead
    dim = step.dim(step.argument(1, "dim", 0), len(step.output_shape))
    return Sharded(lead.dim + (dim <= lead.dim), lead.pieces, lead.origin)


@operation("repeat_interleave")
def repeat_interleave(step: Step) -> Type:
    """Every place of a dim repeated in place."""
    kind = step.type(step.inputs[0])
    if len(step.inputs) > 1 or step.argument(2, "dim") is None:
        raise CantFollowError("its repeats")
    count = len(step.shape(step.inputs[0]))
    dim = step.dim(step.argument(2, "dim"), count)
    if isinstance(kind, Sharded) and kind.dim == dim:
        times = step.number(step.argument(1, "repeats"), None)
        if any(step.number(step.argument(1, "repeats"), rank) != times for rank in range(step.ranks)):
            raise CantFollowError("its repeats")
        return Sharded(dim, tuple(scaled(pieces, times) for pieces in kind.pieces), kind.origin)
    if isinstance(kind, Fill):
        raise CantFollowError("a repeated part of a constant")
    return kind


@operation("embedding")
def embedding(step: Step) -> Type:
    """Rows of a weight: a slice of the vocabulary gives summands, a slice of every vector a shard."""
    ids, weight = step.type(step.inputs[0]), step.type(step.inputs[1])
    if isinstance(ids, PartialSum):
        raise step.mismatch(Kind.UNREDUCED, "ids that are parts of a sum are no ids", step.inputs[0])
    if not isinstance(ids, type(WHOLE)):
        raise CantFollowError("ids that aren't whole")
    if not isinstance(weight, Sharded):
        return weight
    if weight.dim == 0:
        if not step.looks_up_shard:
            raise step.mismatch(Kind.NEEDS_WHOLE, "ids are looked up in a part of the vocabulary", step.inputs[1])
        return PartialSum(weight.origin)
    return Sharded(len(step.output_shape) - 1, weight.pieces, weight.origin)


@operation("gather", "index_select", "take_along_dim", "scatter")
def gather(step: Step) -> Type:
    """Places of a dim picked by whole indices, where the dim is whole."""
    kind = step.type(step.inputs[0])
    dim = step.dim(step.argument(1, "dim"), len(step.shape(step.inputs[0])))
    if isinstance(kind, Sharded) and kind.dim == dim:
        raise step.mismatch(
            Kind.NEEDS_WHOLE, f"it picks places of {step.shape(step.inputs[0])[dim]}, a rank has a part"
        )
    others = [step.type(value) for value in step.inputs[1:]]
    if isinstance(kind, Sharded | Fill) or any(not isinstance(other, type(WHOLE)) for other in others):
        raise CantFollowError("places picked of a part")
    return kind


@operation("index_add", "scatter_add")
def index_add(step: Step) -> Type:
    """Places of a whole dim added to: summands to summands, or to zeros."""
    target, value = step.inputs[0], step.inputs[-1]
    kinds = step.type(target), step.type(value)
    dim = step.dim(step.argument(1, "dim"), len(step.shape(target)))
    if any(isinstance(kind, Sharded) and kind.dim == dim for kind in kinds):
        raise step.mismatch(Kind.NEEDS_WHOLE, f"it picks places of {step.shape(target)[dim]}, a rank has a part")
    if any(not isinstance(step.type(index), type(WHOLE)) for index in step.inputs[1:-1]):
        raise CantFollowError("places that aren't whole")
    return add_together(step, target, value)


@operation("repeat")
def repeat(step: Step) -> Type:
    """A layer like one before hands on what it got; torch's own `repeat(sizes)` of a part isn't followed."""
    sizes = step.op.arguments[1:]
    if any(isinstance(size, int) or (isinstance(size, list) and size[:1] == ["n"]) for size in sizes):
        raise CantFollowError("repeats of a part")
    alike = (value for value in step.inputs if step.shape(value) == step.output_shape)
    return step.type(next(alike, step.inputs[0]))
