"""Where a parameter is multiplied with what flows: linear layers, and experts held in one tensor."""

from collections.abc import Iterator
from dataclasses import dataclass

from planc.model.dataflow import Flow, Operation
from planc.model.walks import ahead

# What may lie between a parameter and the product: picking an expert, turning, a change of type.
_PICKS = frozenset({"getitem", "transpose", "t", "T", "mT", "permute", "to", "float", "type_as", "contiguous"})


@dataclass(frozen=True, slots=True)
class Projection:
    """`output` has `out_features` made of `in_features`; `parameters` are weight and bias with that dim."""

    module: str
    output: int
    in_features: int
    out_features: int
    parameters: tuple[tuple[str, int], ...]


def projections(flow: Flow) -> list[Projection]:
    """Every product with a parameter, in order."""
    return [found for op in flow.operations if (found := _projection(flow, op)) is not None]


def _projection(flow: Flow, op: Operation) -> Projection | None:
    if op.name == "linear":
        weight = _parameter(flow, op.inputs[1])
        return None if weight is None else _linear(flow, op, weight)
    if op.name in ("matmul", "bmm", "mm", "addmm", "baddbmm"):
        left, right = op.inputs[-2:]
        if (weight := _parameter(flow, left)) is not None:
            return _product(flow, op, weight, left, row=True)
        if (weight := _parameter(flow, right)) is not None:
            return _product(flow, op, weight, right, row=False)
    return None


def _linear(flow: Flow, op: Operation, weight: str) -> Projection:
    out_features, in_features = flow.shapes[op.inputs[1]][-2:]
    bias = _parameter(flow, op.inputs[2]) if len(op.inputs) > 2 else None
    dim = len(_shape(flow, weight)) - 2
    parameters = ((weight, dim),) if bias is None else ((weight, dim), (bias, len(_shape(flow, bias)) - 1))
    return Projection(flow.modules[op.module], op.outputs[0], in_features, out_features, parameters)


def _product(flow: Flow, op: Operation, weight: str, operand: int, *, row: bool) -> Projection | None:
    """A product whose left (`row`) or right operand is made of `weight`."""
    shape = flow.shapes[operand]
    if len(shape) < 2:
        return None
    out_features, in_features = (shape[-2], shape[-1]) if row else (shape[-1], shape[-2])
    dims = [dim for dim, size in enumerate(_shape(flow, weight)) if size == out_features and dim > 0] or [
        dim for dim, size in enumerate(_shape(flow, weight)) if size == out_features
    ]
    if not dims:
        return None
    turned = _turned(flow, operand)
    dim = len(_shape(flow, weight)) - (2 if row != turned else 1)
    biases = tuple(_biases(flow, op.outputs[0], out_features))
    return Projection(flow.modules[op.module], op.outputs[0], in_features, out_features, ((weight, dim), *biases))


def _biases(flow: Flow, value: int, width: int) -> Iterator[tuple[str, int]]:
    """Parameters of the output's width that are added to it right away."""
    for read, op in ahead(flow, value, lambda op: op.name == "squeeze"):
        for other in op.inputs if op.name == "add" else ():
            name = _parameter(flow, other) if other != read else None
            if name is not None and _shape(flow, name)[-1] == width:
                yield name, len(_shape(flow, name)) - 1


def _parameter(flow: Flow, value: int) -> str | None:
    """The name of the parameter that `value` is, or is picked from."""
    while value not in flow.sources:
        op = flow.producers.get(value)
        if op is None or op.name not in _PICKS or not op.inputs:
            return None
        value = op.inputs[0]
    source = flow.sources[value]
    return source.removeprefix("parameter:") if source.startswith("parameter:") else None


def _turned(flow: Flow, value: int) -> bool:
    """Whether the last two dims change places between the parameter and `value`."""
    turned = False
    while value not in flow.sources:
        op = flow.producers[value]
        turned ^= op.name in ("transpose", "t", "T", "mT", "permute")
        value = op.inputs[0]
    return turned


def _shape(flow: Flow, parameter: str) -> tuple[int, ...]:
    return flow.parameter_shapes[parameter]
