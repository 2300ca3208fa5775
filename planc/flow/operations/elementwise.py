"""Operations on each number by itself, with broadcasting."""

from collections.abc import Iterable

from planc.flow.problems import CantFollowError, Kind
from planc.flow.step import Step, operation
from planc.flow.types import WHOLE, Fill, PartialSum, Sharded, Type

# Of a sum, these are the sum of the summands' results; of anything else, they are functions of each number.
_LINEAR = (
    "to", "float", "type_as", "type", "double", "half", "bfloat16", "contiguous", "clone", "neg", "negative", "dropout",
    "detach", "alias", "positive", "real", "requires_grad", "cpu", "cuda",
)  # fmt: skip
_NONLINEAR = (
    "silu", "gelu", "relu", "sigmoid", "tanh", "exp", "log", "softplus", "pow", "square", "sqrt", "rsqrt", "clamp",
    "clamp_min", "clamp_max", "clip", "abs", "cos", "sin", "erf", "erfinv", "log1p", "expm1", "relu6", "hardtanh",
    "leaky_relu", "elu", "mish", "hardswish", "log_sigmoid", "logsigmoid", "reciprocal", "rpow", "eq", "ne", "lt", "le",
    "gt", "ge", "greater", "less", "invert", "bitwise_not", "logical_not", "isnan", "isinf", "nan_to_num", "round",
    "floor", "ceil", "sign", "int", "long", "bool", "maximum", "minimum", "and", "or", "logical_and", "logical_or",
    "xor",    "remainder", "floordiv", "floor_divide", "fmod", "rdiv", "_softmax_backward_data", "threshold", "atan2",
)  # fmt: skip


@operation(*_LINEAR)
def linear_function(step: Step) -> Type:
    """Keeps every type, summands too."""
    return step.type(step.inputs[0])


@operation(*_NONLINEAR)
def nonlinear(step: Step) -> Type:
    """Refuses summands: a function of a sum isn't the sum of the functions."""
    for value in step.inputs:
        if isinstance(step.type(value), PartialSum):
            raise step.mismatch(
                Kind.UNREDUCED, f"`{step.op.name}` of a partial sum: of the sum it would be something else", value
            )
    return broadcast(step, step.inputs)


@operation("add", "sub", "rsub", "radd", "iadd", "subtract")
def add(step: Step) -> Type:
    """Summands may be added to summands; a complete value added to one counts once for every rank."""
    seen = [value for value in step.inputs if value not in step.added_later]
    return step.type(seen[0]) if len(seen) == 1 < len(step.inputs) else add_together(step, *step.inputs)


def add_together(step: Step, *values: int) -> Type:
    """The type of a sum of values; zeros are summands of zero."""
    kinds = [step.type(value) for value in values]
    partial = [kind for kind in kinds if isinstance(kind, PartialSum)]
    if not partial:
        return broadcast(step, values)
    rest = [value for value, kind in zip(values, kinds, strict=True) if not isinstance(kind, PartialSum)]
    if len(values) > 1 and all(step.is_zero(value) for value in rest):
        return partial[0]
    raise step.mismatch(Kind.UNREDUCED, "a partial sum is added to a complete value")


@operation("mul", "div", "truediv", "multiply", "true_divide", "imul", "rmul", "divide", "masked_fill")
def multiply(step: Step) -> Type:
    """A summand times a complete value is a summand; times another one it isn't."""
    partial = [value for value in step.inputs if isinstance(step.type(value), PartialSum)]
    if not partial:
        return broadcast(step, step.inputs)
    others = [step.type(value) for value in step.inputs if value not in partial]
    is_divisor = step.op.name in ("div", "truediv", "true_divide", "divide") and step.value(1) in partial
    if len(partial) > 1 or is_divisor or any(not _is_whole(kind) for kind in others):
        raise step.mismatch(Kind.UNREDUCED, "a partial sum is multiplied by something that varies")
    if step.op.name == "masked_fill" and step.argument(2, "value") not in (0, 0.0):
        raise step.mismatch(Kind.UNREDUCED, "a partial sum is filled with a value")
    return step.type(partial[0])


@operation("copy")
def copy(step: Step) -> Type:
    """`x.copy_(value)`: what was there is gone."""
    kind = step.type(step.inputs[1])
    if isinstance(kind, Sharded):
        dim = kind.dim + len(step.output_shape) - len(step.shape(step.inputs[1]))
        return Sharded(dim, kind.pieces, kind.origin)
    return step.type(step.inputs[0]) if isinstance(step.type(step.inputs[0]), Fill) else kind


@operation("where")
def where(step: Step) -> Type:
    """Chosen by number: both sides of one type."""
    kinds = [step.type(value) for value in step.inputs[1:]]
    if any(isinstance(kind, PartialSum) for kind in kinds):
        if _is_whole(step.type(step.inputs[0])) and all(isinstance(kind, PartialSum) for kind in kinds):
            return kinds[0]
        raise step.mismatch(Kind.UNREDUCED, "a partial sum is one of two choices")
    return broadcast(step, step.inputs)


def broadcast(step: Step, values: Iterable[int]) -> Type:
    """The common type of values that are combined number by number. Raises MismatchError where there is none."""
    values = list(values)
    count = len(step.output_shape)
    shards = [(value, kind) for value in values if isinstance(kind := step.type(value), Sharded)]
    if not shards:
        return _without_shards(step, values)
    first, lead = shards[0]
    dim = lead.dim + count - len(step.shape(first))
    for value, kind in shards[1:]:
        if kind.dim + count - len(step.shape(value)) != dim:
            raise step.mismatch(Kind.SHARDS_DISAGREE, "its inputs are sharded on different dims", first, value)
        if kind.pieces != lead.pieces:
            raise step.mismatch(
                Kind.SHARDS_DISAGREE, f"a rank's parts differ: {said(lead)} and {said(kind)}", first, value
            )
    for value in values:
        _fits(step, value, dim - count, lead, first)
    return Sharded(dim, lead.pieces, lead.origin)


def _fits(step: Step, value: int, from_end: int, lead: Sharded, first: int) -> None:
    """Whether `value`, unless sharded itself, has the shard's size in its dim, or one that repeats."""
    kind, shape = step.type(value), step.shape(value)
    if isinstance(kind, Sharded) or len(shape) < -from_end:
        return
    if isinstance(kind, Fill):
        if any(shape[from_end] not in (1, size) for shape, size in zip(kind.shapes, lead.sizes, strict=True)):
            raise step.mismatch(Kind.SHARDS_DISAGREE, f"{kind.shapes[0]} doesn't fit a shard of {lead.sizes[0]}")
        return
    if shape[from_end] != 1:
        detail = f"a shard of {lead.sizes[0]} meets all {shape[from_end]}"
        raise step.mismatch(Kind.SHARDS_DISAGREE, detail, first, value)


def _without_shards(step: Step, values: list[int]) -> Type:
    fills = [kind for value in values if isinstance(kind := step.type(value), Fill)]
    if not fills:
        return WHOLE
    shapes = []
    for rank in range(step.ranks):
        local = [step.local_shape(value, rank) for value in values]
        shapes.append(_broadcast_shape(step, local))
    return WHOLE if all(shape == step.output_shape for shape in shapes) else Fill(tuple(shapes))


def _broadcast_shape(step: Step, shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    count = max(map(len, shapes))
    padded = [(1,) * (count - len(shape)) + shape for shape in shapes]
    result = []
    for column in zip(*padded, strict=True):
        found = {size for size in column if size != 1}
        if len(found) > 1:
            raise CantFollowError("its inputs have sizes that don't fit")
        result.append(found.pop() if found else 1)
    return tuple(result)


def _is_whole(kind: Type) -> bool:
    return not isinstance(kind, Sharded | PartialSum)


def said(kind: Sharded) -> str:
    """The parts of the first ranks, as `0:8 | 8:16`."""
    ranks = [" + ".join(f"{start}:{stop}" for start, stop in pieces) or "nothing" for pieces in kind.pieces[:2]]
    return " | ".join(ranks)
