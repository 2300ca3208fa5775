"""Sums, norms and softmaxes over dims: over a sharded one only a sum can be mended later."""

from collections.abc import Sequence

from planc.flow.operations.elementwise import nonlinear
from planc.flow.problems import CantFollowError, Kind
from planc.flow.step import Step, operation
from planc.flow.types import Fill, PartialSum, Sharded, Type

_KEEPS_DIM = ("softmax", "log_softmax", "cumsum", "cumprod", "logcumsumexp", "normalize", "flip", "sort", "argsort")
_DROPS_DIM = ("mean", "max", "min", "amax", "amin", "argmax", "argmin", "logsumexp", "var", "std", "norm", "prod",
              "any", "all", "linalg_vector_norm", "median")  # fmt: skip
_LINEAR = ("mean", "cumsum", "flip")


@operation("sum")
def total(step: Step) -> Type:
    """Over a sharded dim the sum is a summand."""
    kind = step.type(step.inputs[0])
    if isinstance(kind, Sharded) and kind.dim in _dims(step):
        return PartialSum(kind.origin)
    return _reduced(step, kind)


@operation(*_DROPS_DIM)
def reduction(step: Step) -> Type | Sequence[Type]:
    """Over a sharded dim each rank reduces over what it holds, which is something else."""
    kind = step.type(step.inputs[0])
    if step.op.name in ("max", "min") and step.value(1) is not None:
        return nonlinear(step)
    if isinstance(kind, PartialSum) and step.op.name not in _LINEAR:
        raise step.mismatch(Kind.UNREDUCED, f"`{step.op.name}` of a partial sum: of the sum it would be something else")
    _refuse_sharded(step, kind, _dims(step))
    return [_reduced(step, kind)] * len(step.op.outputs)


@operation(*_KEEPS_DIM, "topk")
def along_a_dim(step: Step) -> Type | Sequence[Type]:
    """As a reduction, but the dim stays."""
    kind = step.type(step.inputs[0])
    if isinstance(kind, PartialSum) and step.op.name not in _LINEAR:
        raise step.mismatch(Kind.UNREDUCED, f"`{step.op.name}` of a partial sum: of the sum it would be something else")
    position = 2 if step.op.name == "topk" else 1
    default = 1 if step.op.name == "normalize" else -1
    argument = step.argument(position + (step.op.name == "normalize"), "dim", default)
    dims = argument if isinstance(argument, list) else [argument]
    count = len(step.shape(step.inputs[0]))
    _refuse_sharded(step, kind, [step.dim(dim, count) for dim in dims])
    return [kind] * len(step.op.outputs)


@operation("layer_norm", "rms_norm")
def norm(step: Step) -> Type:
    """Over the last dims, with a whole weight."""
    kind = step.type(step.inputs[0])
    if isinstance(kind, PartialSum):
        raise step.mismatch(Kind.UNREDUCED, "a norm of a partial sum: of the sum it would be something else")
    normalized = step.argument(1, "normalized_shape")
    count = len(step.shape(step.inputs[0]))
    depth = len(normalized) if isinstance(normalized, list | tuple) else 1
    _refuse_sharded(step, kind, range(count - depth, count))
    for value in step.inputs[1:]:
        if isinstance(step.type(value), Sharded):
            raise step.mismatch(Kind.SHARDS_DISAGREE, "its weight is sharded", value)
    return kind


def _dims(step: Step) -> list[int]:
    count = len(step.shape(step.inputs[0]))
    position = 2 if step.op.name in ("norm", "linalg_vector_norm") else 1
    argument = step.argument(position, "dim")
    if argument is None or isinstance(argument, bool):
        return list(range(count))
    return [step.dim(dim, count) for dim in (argument if _is_list(argument) else [argument])]


def _is_list(argument: object) -> bool:
    return isinstance(argument, list) and not (len(argument) == 2 and argument[0] == "n")


def _refuse_sharded(step: Step, kind: Type, dims: Sequence[int]) -> None:
    if isinstance(kind, Sharded) and kind.dim in dims:
        size = step.shape(step.inputs[0])[kind.dim]
        raise step.mismatch(Kind.REDUCED_OVER_SHARD, f"it goes over {kind.sizes[0]} of {size} features")


def _reduced(step: Step, kind: Type) -> Type:
    if isinstance(kind, Fill):
        raise CantFollowError("a reduction of a part of a constant")
    if not isinstance(kind, Sharded) or len(step.output_shape) == len(step.shape(step.inputs[0])):
        return kind
    return Sharded(kind.dim - sum(dim < kind.dim for dim in _dims(step)), kind.pieces, kind.origin)
