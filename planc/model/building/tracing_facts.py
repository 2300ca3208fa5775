"""What a watched forward tells of a model: which projections make heads, and how fused weights are packed."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Literal

from planc.model.building.tracing_projections import Projection, projections
from planc.model.dataflow import Flow, Operation, evaluate
from planc.model.manifest import Attention, Heads, Packing
from planc.model.walks import ahead, behind

Role = Literal["query", "key", "value"]
ROLES: tuple[Role, ...] = ("query", "key", "value")
_SPLITS = frozenset({"chunk", "split", "split_with_sizes", "tensor_split", "unbind"})
_VIEWS = frozenset({"view", "reshape", "unflatten"})
# What may lie between a projection and the splitting of its output, without changing which feature is where.
_PASSES = frozenset({"enter", "leave", "to", "float", "type_as", "contiguous", "add", "squeeze", "clamp", "dropout"})


@dataclass
class Facts:
    """Facts by module name, and by parameter name."""

    heads: dict[str, Heads] = field(default_factory=dict)
    attention: dict[str, Attention] = field(default_factory=dict)
    packing: dict[str, Packing] = field(default_factory=dict)


def facts(flow: Flow) -> Facts:
    """All facts of a flow, by the names of the layers that were watched."""
    found = Facts()
    of_flow = projections(flow)
    by_output = {projection.output: projection for projection in of_flow}
    roles = _roles(flow, by_output, found)
    for projection in of_flow:
        role = roles.get(projection.output)
        heads = _heads(flow, projection, role)
        if heads is not None:
            found.heads.setdefault(projection.module, heads)
        if heads is None or role in (None, "fused"):
            packing = _packing(flow, projection)
            if packing is not None:
                for parameter, dim in projection.parameters:
                    found.packing[parameter] = packing.model_copy(update={"dim": dim})
    _count_kv_heads(flow, of_flow, roles, found)
    return found


def _roles(flow: Flow, by_output: Mapping[int, Projection], found: Facts) -> dict[int, str]:
    """Which projections make queries, keys and values; those that make several are fused."""
    reached: dict[int, set[str]] = {}
    for attention in _attentions(flow):
        for role, value in zip(ROLES, attention.arguments, strict=True):
            for output in _projections_behind(flow, value, attention.module, by_output):
                reached.setdefault(output, set()).add(role)
        module = flow.modules[attention.module]
        query, key = flow.shapes[attention.arguments[0]], flow.shapes[attention.arguments[1]]
        if len(query) == 4 and all(query) and all(key):
            found.attention.setdefault(
                module, Attention(num_heads=query[1], num_key_value_heads=key[1], head_dim=query[3])
            )
            _output_heads(flow, attention, by_output, found)
    return {output: roles.copy().pop() if len(roles) == 1 else "fused" for output, roles in reached.items()}


@dataclass(frozen=True, slots=True)
class _AttentionCall:
    module: int
    arguments: tuple[int, int, int]
    output: int


def _attentions(flow: Flow) -> Iterator[_AttentionCall]:
    """Every place where queries meet keys: torch's fused attention, or two matmuls around a softmax."""
    for op in flow.operations:
        if op.name == "scaled_dot_product_attention" and len(op.inputs) >= 3:
            yield _AttentionCall(op.module, (op.inputs[0], op.inputs[1], op.inputs[2]), op.outputs[0])
        elif op.name == "softmax" and len(flow.shapes[op.outputs[0]]) == 4:
            scores = _behind(flow, op.inputs[0], op.module, _is_matmul)
            mixing = next(iter(_ahead(flow, op.outputs[0], _is_matmul)), None)
            if scores and mixing is not None and len(scores[0].inputs) == 2 and len(mixing.inputs) == 2:
                query, key = scores[0].inputs
                yield _AttentionCall(op.module, (query, key, mixing.inputs[1]), mixing.outputs[0])


def _is_matmul(op: Operation) -> bool:
    return op.name in ("matmul", "bmm")


def _behind(flow: Flow, value: int, module: int, wanted: Callable[[Operation], bool]) -> list[Operation]:
    """The nearest operations behind `value` that are `wanted`, nearest first, up to the inputs of `module`."""

    def through(op: Operation) -> bool:
        return not wanted(op) and not (op.name == "enter" and op.module == module)

    return [op for _, op in behind(flow, value, through) if wanted(op)]


def _ahead(flow: Flow, value: int, wanted: Callable[[Operation], bool]) -> list[Operation]:
    """The nearest operations that read `value` and are `wanted`: all that read the same value as the first of them."""
    found = ahead(flow, value, lambda op: not wanted(op))
    _, nearest = next(groupby(found, key=itemgetter(0)), (None, ()))
    return [op for _, op in nearest]


def _projections_behind(flow: Flow, value: int, module: int, by_output: Mapping[int, Projection]) -> list[int]:
    ops = _behind(flow, value, module, lambda op: bool(op.outputs) and op.outputs[0] in by_output)
    return [op.outputs[0] for op in ops]


def _output_heads(flow: Flow, attention: _AttentionCall, by_output: Mapping[int, Projection], found: Facts) -> None:
    """The projection after attention, where its input is the heads one after the other."""
    for op in _ahead(flow, attention.output, lambda op: bool(op.outputs) and op.outputs[0] in by_output):
        projection = by_output[op.outputs[0]]
        shape = flow.shapes[attention.output]
        if projection.in_features == shape[1] * shape[3]:
            found.heads.setdefault(projection.module, Heads(role="output", count=shape[1], size=shape[3]))


def _consumers(flow: Flow, value: int, width: int) -> list[Operation]:
    """What reads a projection's output, seen through operations that leave its features in place."""

    def carries(output: int) -> bool:
        return width in flow.shapes[output]

    return [
        op for _, op in ahead(flow, value, lambda op: op.name in _PASSES and any(map(carries, op.outputs)), carries)
    ]


def _split_of(flow: Flow, op: Operation, width: int) -> tuple[int, int] | None:
    """`(count, size)` where `op` views the last dim of `width` features as heads."""
    if op.name not in _VIEWS:
        return None
    shape = flow.shapes[op.outputs[0]]
    source = flow.shapes[op.inputs[0]]
    if not all(shape) or len(shape) < 3 or source[-1] != width or shape[-2] * shape[-1] != width or shape == source:
        return None
    return shape[-2], shape[-1]


def _heads(flow: Flow, projection: Projection, role: str | None) -> Heads | None:
    width = projection.out_features
    for op in _consumers(flow, projection.output, width):
        split = _split_of(flow, op, width)
        if split is not None:
            return Heads(role=role or "other", count=split[0], size=split[1])  # type: ignore[arg-type]
    if role is None:
        return None
    # Norms over all features, or slices of a fused projection, come before the view: take the heads' size from there.
    for op in _ahead(flow, projection.output, lambda op: _makes_heads(flow, op)):
        size = flow.shapes[op.outputs[0]][-1]
        if size and width % size == 0:
            return Heads(role=role, count=width // size, size=size)  # type: ignore[arg-type]
    return None


def _makes_heads(flow: Flow, op: Operation) -> bool:
    """Whether `op` views the last dim of its input as two or more heads."""
    split = _split_of(flow, op, flow.shapes[op.inputs[0]][-1]) if op.name in _VIEWS else None
    return split is not None and split[0] > 1


def _packing(flow: Flow, projection: Projection) -> Packing | None:
    """How the output is taken apart: in blocks, in turns, or per head."""
    width = projection.out_features
    consumers = _consumers(flow, projection.output, width)
    parts = _parts(flow, consumers, width)
    if parts is not None:
        return Packing(dim=0, layout=parts[0], parts=parts[1], group=parts[2])
    for op in consumers:
        split = _split_of(flow, op, width)
        if split is None or len(consumers) > 1:
            continue
        inner = _parts(flow, _inside(flow, op.outputs[0]), split[1])
        if inner is not None:
            return Packing(
                dim=0, layout="interleaved", parts=tuple(split[0] * part for part in inner[1]), group=split[1]
            )
    return None


def _inside(flow: Flow, value: int) -> list[Operation]:
    """What reads the heads of a fused projection, seen through exchanges of other dims than the last."""
    last = flow.shapes[value][-1]

    def through(op: Operation) -> bool:
        return op.name in ("transpose", "permute", "contiguous") and flow.shapes[op.outputs[0]][-1] == last

    return [op for _, op in ahead(flow, value, through)]


def _parts(
    flow: Flow, consumers: list[Operation], width: int
) -> tuple[Literal["blocks", "interleaved"], tuple[int, ...], int | None] | None:
    """The parts into which `consumers` take the last dim, if that is all they do with it."""
    # A config without rotary features, say, splits off none of them: that is no packing.
    if not consumers or any(not all(flow.shapes[output]) for op in consumers for output in op.outputs):
        return None
    if len(consumers) == 1 and consumers[0].name in _SPLITS:
        widths = tuple(flow.shapes[output][-1] for output in consumers[0].outputs)
        return ("blocks", widths, None) if len(widths) > 1 and sum(widths) == width else None
    slices = [_last_slice(flow, op, width) for op in consumers]
    if len(slices) < 2 or any(piece is None for piece in slices):
        return None
    pieces = sorted({piece for piece in slices if piece is not None})
    if all(piece.step == 1 for piece in pieces):
        joined = all(left.stop == right.start for left, right in pairwise(pieces))
        if len(pieces) > 1 and joined and pieces[0].start == 0 and pieces[-1].stop == width:
            return "blocks", tuple(piece.stop - piece.start for piece in pieces), None
        return None
    step = pieces[0].step
    if {piece.step for piece in pieces} == {step} and [piece.start for piece in pieces] == list(range(step)):
        return "interleaved", tuple(width // step for _ in pieces), step
    return None


@dataclass(frozen=True, slots=True, order=True)
class _Slice:
    start: int
    stop: int
    step: int


def _last_slice(flow: Flow, op: Operation, width: int) -> _Slice | None:
    """Which features of the last dim an indexing takes, where it takes all of the other dims."""
    if op.name != "getitem" or len(op.arguments) != 2 or not isinstance(op.arguments[1], list | tuple):
        return None
    index = list(op.arguments[1])
    if index and index[0] == "s":
        index = [index]
    *others, last = index
    whole = all(item == ["s", None, None, None] or item == ["o", "..."] for item in others)
    reaches = ["o", "..."] in others or len(index) == len(flow.shapes[op.inputs[0]])
    if not (whole and reaches and isinstance(last, list) and last[0] == "s"):
        return None
    numbers = [_plain(flow, number) for number in last[1:]]
    start, stop, step = slice(*numbers).indices(width)
    return _Slice(start, stop, step)


def _plain(flow: Flow, number: object) -> int | None:
    """A recorded number at the sizes that were watched."""
    return None if number is None else evaluate(number, lambda value, dim: flow.shapes[value][dim])


def _count_kv_heads(flow: Flow, of_flow: list[Projection], roles: Mapping[int, str], found: Facts) -> None:
    """Keys may be repeated for every query head before attention sees them: count those of the key projection."""
    for projection in of_flow:
        heads = found.heads.get(projection.module)
        module = projection.module.rpartition(".")[0]
        if roles.get(projection.output) == "key" and heads is not None and module in found.attention:
            attention = found.attention[module]
            if heads.count and attention.num_key_value_heads % heads.count == 0 and heads.size == attention.head_dim:
                found.attention[module] = attention.model_copy(update={"num_key_value_heads": heads.count})
