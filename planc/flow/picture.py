"""The typed picture of a model under a plan: what flows into and out of each module, as text."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from planc.diagnostics.render.table import table
from planc.flow.analysis import FlowAnalysis, Judgement
from planc.flow.types import Gradient, Sharded, Type
from planc.model.dataflow import Operation
from planc.model.walks import behind
from planc.syntax.matching import generic_name


@dataclass(frozen=True, slots=True)
class Port:
    """A value at a module's edge: its type, that of its gradient, and the modules on the other side."""

    type: str
    gradient: str
    modules: tuple[str, ...]
    origin: str | None = None

    def __str__(self) -> str:
        return self.type if self.gradient == str(Gradient.NONE) else f"{self.type} ~{self.gradient}"


@dataclass(frozen=True, slots=True)
class Passage:
    """One call of a module. `alike` are all modules that the plan treats so; `input` is its first tensor."""

    module: str
    alike: tuple[str, ...]
    style: str | None
    input: Port | None
    output: Port | None


def passages(judgement: Judgement) -> list[Passage]:
    """Every module that was called, in the order of the calls."""
    flow = judgement.forward.flow
    entered: list[tuple[int, Operation]] = []
    found: dict[int, Passage] = {}
    for number, op in enumerate(flow.operations):
        if op.name == "enter":
            entered.append((number, op))
        elif op.name == "leave" and entered:
            start, enter = entered.pop()
            found[start] = _passage(judgement, enter, op)
    return [found[number] for number in sorted(found)]


def _passage(judgement: Judgement, enter: Operation, leave: Operation) -> Passage:
    flow, model = judgement.forward.flow, judgement.model
    name = flow.modules[enter.module]
    style = model.style(name)
    source = _port(judgement, enter.inputs[0], _producers(judgement, enter.inputs[0])) if enter.inputs else None
    target = _port(judgement, leave.outputs[0], _readers(judgement, leave.outputs[0])) if leave.outputs else None
    concrete = model.name(name)
    return Passage(concrete, judgement.alike(concrete), style.name if style else None, source, target)


def _port(judgement: Judgement, value: int, modules: Iterable[str]) -> Port:
    kind = judgement.forward.types[value]
    gradient = judgement.backward.gradients[value]
    origin = getattr(kind, "origin", None)
    return Port(
        said(kind, len(judgement.forward.flow.shapes[value])),
        said_gradient(gradient, kind, len(judgement.forward.flow.shapes[value])),
        tuple(dict.fromkeys(modules)),
        None if origin is None else f"{generic_name(origin.target)} ({origin.style})",
    )


def said(kind: Type, dims: int) -> str:
    """A type with the last dims counted from the end: `S(-1)`."""
    if not isinstance(kind, Sharded):
        return str(kind)
    return str(Sharded(kind.dim - dims, kind.pieces))


def said_gradient(gradient: Gradient, kind: Type, dims: int) -> str:
    """The type of a gradient: of a part, the complete gradient is a part itself."""
    if gradient is Gradient.COMPLETE and isinstance(kind, Sharded):
        return said(kind, dims)
    return str(gradient)


def _producers(judgement: Judgement, value: int) -> Iterator[str]:
    """The module that a value left last, seen through operations of the caller."""
    flow = judgement.forward.flow

    def through(op: Operation) -> bool:
        return op.name not in ("enter", "leave")

    for _, op in behind(flow, value, through, lambda source: flow.differentiable[source]):
        if op.name == "leave":
            yield judgement.model.name(flow.modules[op.module])


def _readers(judgement: Judgement, value: int) -> Iterator[str]:
    """What reads a value: modules that it enters, and operations of the caller."""
    flow = judgement.forward.flow
    for op in flow.consumers.get(value, ()):
        name = judgement.model.name(flow.modules[op.module])
        yield name if op.name in ("enter", "leave") else f"`{op.name}` in {name or 'the model'}"


_LEGEND = "R: whole, S(-1): a part of the last dim, P: a partial sum, ?: not known; after ~ the gradient's type"


def show(analysis: FlowAnalysis) -> str:
    """The picture of each kind of layer: a module a line, with its style, and types and gradients in and out.

    Layers that the plan treats apart are blocks of their own after the first.
    """
    if not analysis.judgements:
        return _without_picture(analysis)
    blocks: list[list[tuple[str, ...]]] = []
    seen: set[tuple[str, ...]] = set()
    for judgement in analysis.judgements:
        rows = dict.fromkeys(_row(passage) for passage in passages(judgement))
        blocks.append([row for row in rows if row not in seen])
        seen.update(rows)
    lines = iter(table(row for block in blocks for row in block).splitlines())
    drawn = ("\n".join(islice(lines, len(block))) for block in blocks if block)
    return "\n\n".join((*drawn, _LEGEND)) + "\n"


def _without_picture(analysis: FlowAnalysis) -> str:
    if analysis.flow is None:
        return "no types: the model could not be watched\n"
    return "no types: without tensor parallelism every value is whole\n"


def _row(passage: Passage) -> tuple[str, ...]:
    parts = generic_name(passage.module).split(".")
    name = ".".join(parts[-2:] if parts[-1] == "*" else parts[-1:]) or "(the model)"
    count = f"{name} x{len(passage.alike)}" if len(passage.alike) > 1 else name
    depth = passage.module.count(".") if passage.module else 0
    return (
        "  " * depth + count,
        passage.style or "-",
        str(passage.input) if passage.input else "-",
        f"-> {passage.output}" if passage.output else "-",
    )


def explain(analysis: FlowAnalysis, names: Iterable[str]) -> str:
    """What flows into and out of the modules of these concrete names, and why; modules alike once."""
    wanted = set(names)
    parts: dict[str, None] = {}
    for judgement in analysis.judgements:
        for passage in passages(judgement):
            if wanted & set(passage.alike):
                parts.setdefault(_explained(passage))
    return "\n".join(parts)


def _explained(passage: Passage) -> str:
    count = len(passage.alike)
    more = f" ({count} modules)" if count > 1 else ""
    lines = [f"{generic_name(passage.module)}{more}: {passage.style or 'no style'}"]
    if passage.input is not None:
        lines += _said_port("in ", passage.input, "from")
    if passage.output is not None:
        lines += _said_port("out", passage.output, "to")
    return "\n".join(lines) + "\n"


def _said_port(side: str, port: Port, preposition: str) -> Iterator[str]:
    modules = ", ".join(generic_name(name) or "the model" for name in port.modules[:4])
    yield f"  {side} {port.type}, gradient {port.gradient}" + (f", {preposition} {modules}" if modules else "")
    if port.origin is not None:
        yield f"      made by {port.origin}"
