"""Matrix products: the contracted dims must be cut alike, and then the result is a summand."""

from planc.flow.operations.elementwise import broadcast, said
from planc.flow.problems import CantFollowError, Kind
from planc.flow.step import Step, operation
from planc.flow.types import WHOLE, Fill, PartialSum, Sharded, Type


@operation("linear")
def linear(step: Step) -> Type:
    """`x @ weight.T + bias`."""
    value, weight = step.inputs[0], step.inputs[1]
    count, wide = len(step.shape(value)), len(step.shape(weight))
    result = _product(step, value, weight, {count - 1: wide - 1}, {wide - 2: count - 1}, keep=count - 1)
    if len(step.inputs) < 3:
        return result
    return _with_bias(step, result, step.inputs[2])


def _with_bias(step: Step, result: Type, bias: int) -> Type:
    kind = step.type(bias)
    last = len(step.output_shape) - 1
    if isinstance(result, PartialSum):
        if isinstance(kind, PartialSum) or bias in step.added_later:
            return result
        raise step.mismatch(
            Kind.BIAS_ON_EVERY_RANK, "every rank adds the whole bias, and the sum has it many times", bias
        )
    shard = result if isinstance(result, Sharded) and result.dim == last else None
    if shard is None and not isinstance(kind, Sharded):
        return result
    if shard is None or not isinstance(kind, Sharded):
        raise step.mismatch(Kind.SHARDS_DISAGREE, f"the bias is {kind}, the product {result}", bias)
    if shard.pieces != kind.pieces:
        detail = f"a rank's parts of the weight ({said(shard)}) and of the bias ({said(kind)}) differ"
        raise step.mismatch(Kind.SHARDS_DISAGREE, detail, bias)
    return result


def _product(step: Step, left: int, right: int, contracted: dict[int, int], outer: dict[int, int], keep: int) -> Type:
    """The product of `left` and `right`.

    `contracted` maps dims of `left` to those of `right` that are summed over, `outer` the dims of `right` to those of
    the result; dims of `left` before `keep` stay where they are.
    """
    one, other = step.type(left), step.type(right)
    sums = [kind for kind in (one, other) if isinstance(kind, PartialSum)]
    if sums:
        rest = other if sums[0] is one else one
        if len(sums) == 2 or isinstance(rest, Sharded):
            raise step.mismatch(Kind.UNREDUCED, "a partial sum is multiplied by a part", left, right)
        return sums[0]
    if isinstance(one, Sharded) and one.dim in contracted:
        return _contracted(step, left, right, one, other, contracted[one.dim])
    if isinstance(other, Sharded) and other.dim in contracted.values():
        detail = f"the whole input meets a weight of {other.sizes[0]} input features of {step.shape(right)[other.dim]}"
        raise step.mismatch(Kind.NEEDS_SHARD, detail, right, left)
    if isinstance(one, Sharded) and isinstance(other, Sharded):
        raise step.mismatch(
            Kind.SHARDS_DISAGREE, "both factors are sharded, on dims that aren't multiplied", left, right
        )
    if isinstance(one, Sharded):
        return one
    if isinstance(other, Sharded):
        return Sharded(outer[other.dim], other.pieces, other.origin)
    return _whole_or_fill(step, one, other)


def _whole_or_fill(step: Step, one: Type, other: Type) -> Type:
    if isinstance(one, Fill) or isinstance(other, Fill):
        raise CantFollowError("a product with a part of a constant")
    return WHOLE


def _contracted(step: Step, left: int, right: int, one: Sharded, other: Type, dim: int) -> Type:
    if isinstance(other, Sharded) and other.dim == dim:
        if other.pieces != one.pieces:
            detail = f"a rank's input features ({said(one)}) aren't those of its weight ({said(other)})"
            raise step.mismatch(Kind.SHARDS_DISAGREE, detail, left, right)
        return PartialSum(other.origin or one.origin)
    detail = f"it gets {one.sizes[0]} of {step.shape(left)[one.dim]} input features, and its weight takes them all"
    raise step.mismatch(Kind.NEEDS_WHOLE, detail, left, right)


@operation("matmul", "bmm", "mm", "rmatmul")
def matmul(step: Step) -> Type:
    """Batched products: batch dims as in elementwise operations."""
    left, right = step.inputs[0], step.inputs[1]
    a, b = len(step.shape(left)), len(step.shape(right))
    if a < 2 or b < 2:
        raise CantFollowError("a product with a vector")
    one, other = step.type(left), step.type(right)
    batch = [kind for kind, count in ((one, a), (other, b)) if isinstance(kind, Sharded) and kind.dim < count - 2]
    if batch:
        return _batched(step, left, right)
    last = len(step.output_shape) - 1
    result = _product(step, left, right, {a - 1: b - 2}, {b - 1: last}, keep=a - 1)
    if isinstance(result, Sharded) and result is one:
        return Sharded(result.dim + last + 1 - a, result.pieces, result.origin)
    return result


def _batched(step: Step, left: int, right: int) -> Type:
    """Sharded on a batch dim: the other factor must be cut alike, or hold one for all."""
    kinds = [step.type(value) for value in (left, right)]
    for value, kind in zip((left, right), kinds, strict=True):
        if isinstance(kind, PartialSum):
            raise step.mismatch(Kind.UNREDUCED, "a partial sum is multiplied by a part", value)
        if isinstance(kind, Sharded) and kind.dim >= len(step.shape(value)) - 2:
            raise step.mismatch(Kind.SHARDS_DISAGREE, "its factors are sharded on different dims", left, right)
    return broadcast(step, (left, right))


@operation("addmm", "baddbmm")
def addmm(step: Step) -> Type:
    """`bias + left @ right`."""
    bias, left, right = step.inputs[:3]
    a, b = len(step.shape(left)), len(step.shape(right))
    result = _product(step, left, right, {a - 1: b - 2}, {b - 1: a - 1}, keep=a - 1)
    return _with_bias(step, result, bias)


@operation("einsum")
def einsum(step: Step) -> Type:
    """Letters name dims: a sharded letter of the result, or a summed one cut alike wherever it stands."""
    equation = step.op.arguments[0]
    if not isinstance(equation, str) or "->" not in equation or "." in equation:
        raise CantFollowError("its equation")
    terms, _, result = equation.replace(" ", "").partition("->")
    letters: dict[str, Sharded] = {}
    for term, value in zip(terms.split(","), step.inputs, strict=True):
        kind = step.type(value)
        if isinstance(kind, PartialSum | Fill):
            raise CantFollowError(f"an input that is {kind}")
        if isinstance(kind, Sharded):
            letters[term[kind.dim]] = kind
    if not letters:
        return WHOLE
    letter, lead = next(iter(letters.items()))
    for term, value in zip(terms.split(","), step.inputs, strict=True):
        kind = step.type(value)
        if letter in term and kind != Sharded(term.index(letter), lead.pieces):
            raise step.mismatch(Kind.SHARDS_DISAGREE, f"dim `{letter}` is cut in one input and not in another", value)
    if len(letters) > 1:
        raise step.mismatch(Kind.SHARDS_DISAGREE, "its inputs are sharded on different dims")
    return Sharded(result.index(letter), lead.pieces, lead.origin) if letter in result else PartialSum(lead.origin)
