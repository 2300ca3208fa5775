"""How tensors flow through a model, as the manifest keeps it: recorded once, read without torch.

A `Flow` is one watched forward: its operations in order, with the values they read and made. Layers that are alike are
recorded once (`LayerKind`). Numbers that the model read off a shape are expressions, those of its config plain.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import networkx

# A node of a flow's graph: a value by its id, an operation by its place.
Node = tuple[Literal["value", "operation"], int]
# What an argument may be: a plain JSON value, or one of the tagged lists below.
Argument = Any
VALUE, NUMBER, SLICE, OTHER = "v", "n", "s", "o"


@dataclass(frozen=True, slots=True)
class Operation:
    """`name` as torch's function of that name (`linear`, `view`, `softmax`), made by the module number `module`.

    `arguments` are positional, `keywords` by name; a tensor is `["v", id]`, a number off a shape `["n", expression]`, a
    slice `["s", start, stop, step]`, anything else that JSON can't say `["o", text]`. Besides torch's functions there
    are `enter` and `leave` (a module's inputs and outputs under new ids) and `repeat` (a layer like one before).
    A function that changes its first input in place has the keyword `in_place`, and makes a new value; it lists the
    modules' outputs that lie in the same memory.
    `inputs` are the ids of all values read, in order; `sizes` those whose sizes stand in the arguments.
    """

    name: str
    module: int
    outputs: tuple[int, ...]
    arguments: tuple[Argument, ...]
    keywords: Mapping[str, Argument]
    inputs: tuple[int, ...]
    sizes: tuple[int, ...]

    @staticmethod
    def of(
        name: str,
        module: int,
        outputs: Sequence[int],
        arguments: Sequence[Argument],
        keywords: Mapping[str, Argument] | None = None,
    ) -> Operation:
        """An operation, its `inputs` and `sizes` gathered from its arguments."""
        inputs: list[int] = []
        sizes: list[int] = []
        keywords = keywords or {}
        _gather(arguments, inputs, sizes)
        _gather(keywords.values(), inputs, sizes)
        return Operation(name, module, tuple(outputs), tuple(arguments), keywords, tuple(inputs), tuple(sizes))


def _gather(arguments: Iterable[Argument], inputs: list[int], sizes: list[int]) -> None:
    """Append the ids of values among `arguments`, and of those whose sizes stand in them."""
    for argument in arguments:
        if type(argument) is not list:
            continue
        tag = argument[0] if argument else None
        if tag == VALUE and len(argument) == 2:
            inputs.append(argument[1])
        elif tag == NUMBER:
            _gather_dims(argument[1], sizes)
        elif tag != OTHER:
            _gather(argument, inputs, sizes)


def _gather_dims(number: Any, sizes: list[int]) -> None:
    if type(number) is list:
        if number[0] == "dim":
            sizes.append(number[1])
        else:
            _gather_dims(number[1], sizes)
            _gather_dims(number[2], sizes)


def evaluate(number: Any, size: Callable[[int, int], int]) -> int:
    """A recorded number where `size(value, dim)` gives the dims. Raises ZeroDivisionError or ValueError."""
    if isinstance(number, int):
        return number
    sign, left, right = (
        number
        if number[0] != NUMBER
        else number[1]
        if isinstance(number[1], list)
        else (
            "+",
            number[1],
            0,
        )
    )
    if sign == "dim":
        return size(left, right)
    return _OPERATORS[sign](evaluate(left, size), evaluate(right, size))


_OPERATORS: Mapping[str, Callable[[int, int], int]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class LayerKind:
    """`module` stands for every module of `alike` (itself among them)."""

    module: str
    alike: tuple[str, ...]


@dataclass(frozen=True)
class Flow:
    """One watched forward. `shapes[id]` is a value's global shape, `differentiable[id]` whether a
    gradient flows into it; `sources` says where values came from that no
    operation made: `parameter:NAME`, `buffer:NAME`, `input:NAME`, `constant`, or `unseen`."""

    modules: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    differentiable: tuple[bool, ...]
    sources: Mapping[int, str]
    operations: tuple[Operation, ...]
    outputs: tuple[int, ...]
    kinds: tuple[LayerKind, ...]

    @cached_property
    def producers(self) -> Mapping[int, Operation]:
        """The operation that made each value."""
        return {value: op for op in self.operations for value in op.outputs}

    @cached_property
    def consumers(self) -> Mapping[int, tuple[Operation, ...]]:
        """The operations that read each value, in order."""
        readers: dict[int, list[Operation]] = {}
        for op in self.operations:
            for value in dict.fromkeys(op.inputs):
                readers.setdefault(value, []).append(op)
        return {value: tuple(ops) for value, ops in readers.items()}

    @cached_property
    def graph(self) -> networkx.DiGraph[Node]:
        """Edges from each value to the operations that read it, and from those to what they make, in order."""
        import networkx

        graph: networkx.DiGraph[Node] = networkx.DiGraph()
        for number, op in enumerate(self.operations):
            node: Node = ("operation", number)
            graph.add_edges_from((("value", value), node) for value in op.inputs)
            graph.add_edges_from((node, ("value", value)) for value in op.outputs)
        return graph

    @cached_property
    def parameter_shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Global shapes of the parameters that were read, by name."""
        named = ((source.removeprefix("parameter:"), value) for value, source in self.sources.items())
        return {name: self.shapes[value] for name, value in named}

    def to_json(self) -> dict[str, Any]:
        """The compact form: shapes and module names once, operations as lists."""
        shapes = list(dict.fromkeys(self.shapes))
        index = {shape: number for number, shape in enumerate(shapes)}
        return {
            "modules": list(self.modules),
            "shapes": [list(shape) for shape in shapes],
            "values": [index[shape] for shape in self.shapes],
            "constants": [number for number, has_gradient in enumerate(self.differentiable) if not has_gradient],
            "sources": {str(value): source for value, source in self.sources.items()},
            "operations": [
                [
                    op.name,
                    op.module,
                    list(op.outputs),
                    list(op.arguments),
                    *([dict(op.keywords)] if op.keywords else []),
                ]
                for op in self.operations
            ],
            "outputs": list(self.outputs),
            "kinds": [[kind.module, list(kind.alike)] for kind in self.kinds],
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Flow:
        """The inverse of `to_json`. Raises ValueError on what isn't one.

        Ids, shapes and numbers off shapes are verified; other arguments are up to the rules that read them.
        """
        try:
            return Flow._read(data)
        except (KeyError, IndexError, TypeError, AttributeError, RecursionError, OverflowError) as error:
            raise ValueError(f"it is no recorded dataflow ({type(error).__name__})") from None

    @staticmethod
    def _read(data: Mapping[str, Any]) -> Flow:
        shapes = [tuple(shape) for shape in data["shapes"]]
        values = tuple(shapes[number] for number in data["values"])
        constants = set(data["constants"])
        flow = Flow(
            modules=tuple(data["modules"]),
            shapes=values,
            differentiable=tuple(number not in constants for number in range(len(values))),
            sources={int(value): source for value, source in data["sources"].items()},
            operations=tuple(
                Operation.of(op[0], op[1], op[2], op[3], op[4] if len(op) > 4 else None) for op in data["operations"]
            ),
            outputs=tuple(data["outputs"]),
            kinds=tuple(LayerKind(module, tuple(alike)) for module, alike in data["kinds"]),
        )
        _verify(flow)
        return flow


def _verify(flow: Flow) -> None:
    """Raises ValueError where ids name no value or module, a value is made twice, or names and sizes are none."""
    names = (*flow.modules, *(name for kind in flow.kinds for name in (kind.module, *kind.alike)))
    if not all(isinstance(name, str) for name in (*names, *flow.sources.values(), *(o.name for o in flow.operations))):
        raise ValueError("a name that is no text")
    if not all(isinstance(size, int) and size >= 0 for shape in flow.shapes for size in shape):
        raise ValueError("a shape that is none")
    made = [value for op in flow.operations for value in op.outputs]
    read = [value for op in flow.operations for value in (*op.inputs, *op.sizes)]
    for value in (*made, *read, *flow.outputs, *flow.sources):
        if not isinstance(value, int) or not 0 <= value < len(flow.shapes):
            raise ValueError(f"`{value}` is no value")
    if len(set(made)) < len(made):
        raise ValueError("a value that two operations make")
    if not all(isinstance(op.module, int) and 0 <= op.module < len(flow.modules) for op in flow.operations):
        raise ValueError("an operation in no module")
    if not all(len(op.inputs) == len(op.outputs) for op in flow.operations if op.name in ("enter", "leave")):
        raise ValueError("a module's edge that loses values")
    if not all(op.inputs and op.outputs for op in flow.operations if "in_place" in op.keywords):
        raise ValueError("a change in place of nothing")
    for op in flow.operations:
        if op.sizes:
            _verify_numbers((*op.arguments, *op.keywords.values()), flow.shapes)
    _verify_order(flow)


def _verify_numbers(arguments: Iterable[Argument], shapes: Sequence[tuple[int, ...]]) -> None:
    """Raises ValueError where a number off a shape reads a dim that the value doesn't have."""

    def size(value: int, dim: int) -> int:
        return shapes[value][dim]

    for argument in arguments:
        if type(argument) is not list or not argument or argument[0] in (VALUE, OTHER):
            continue
        if argument[0] != NUMBER:
            _verify_numbers(argument, shapes)
            continue
        try:
            evaluate(argument[1], size)
        except ZeroDivisionError:  # at these sizes; those who read it know what to do
            continue
        except (KeyError, IndexError, TypeError) as error:
            raise ValueError("a number that no shape gives") from error


def _verify_order(flow: Flow) -> None:
    """Raises ValueError where a value is read before it is made: nothing could be followed back from it."""
    made_at = {value: place for place, op in enumerate(flow.operations) for value in op.outputs}
    for place, op in enumerate(flow.operations):
        if any(made_at.get(value, -1) >= place for value in op.inputs):
            raise ValueError("a value that is read before it is made")
