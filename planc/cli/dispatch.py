"""The part of `planc explain KEY` about experts: how their tokens reach them, and what that costs."""

from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import TYPE_CHECKING

from planc.diagnostics.render.table import table
from planc.diagnostics.units import gigabytes

if TYPE_CHECKING:
    from planc.check.dispatch import Cost, Routing
    from planc.check.rule import CheckContext


def explain_dispatch(context: "CheckContext", names: Iterable[str]) -> str:
    """What is to be said of the experts among the concrete `names`, those alike once; empty where there are none."""
    from planc.check.dispatch import routings
    from planc.check.traffic import dispatching_modules
    from planc.syntax.matching import generic_name

    asked = set(names)
    wanted = dict.fromkeys(generic_name(name) for name in dispatching_modules(context) if name in asked)
    known = routings(context)
    return "\n".join("".join(f"{line}\n" for line in _told(context, name, known.get(name))) for name in wanted)


def _told(context: "CheckContext", name: str, routing: "Routing | None") -> Iterator[str]:
    from planc.check.dispatch import choices, costs, kernels, share

    layout, implementation = context.layout, context.layout.ep_implementation
    held = f"{routing.experts // layout.ep_size} of {routing.experts} experts on a rank" if routing else "experts"
    routes = f", {routing.top_k} for each token" if routing else ""
    yield f"tokens of {name}: {held}{routes}, ep_implementation: {implementation}"
    if implementation == "auto":
        yield from (f"  {line}" for line in choices(layout))
    if (said := share(layout, implementation)) is not None:
        yield f"  {said}"
    yield f"  {kernels()}"
    if routing is None:
        return
    head = ("a forward pass", "messages", "a rank sends", "rows at its experts", "memory of these rows")
    rows = [(name, *_cells(cost, routing)) for name, cost in costs(layout, routing).items()]
    yield ""
    yield from (f"  {line}" for line in table(rows, head, right=(2, 3, 4)).splitlines())
    size = f"{routing.features} features of {routing.element} bytes"
    yield f"  for each token of a TP group's batch, {size}; where all experts get as many (in brackets: where"
    yield "  one rank's get all); a backward pass sends about as much again"


def _cells(cost: "Cost", routing: "Routing") -> tuple[str, str, str, str]:
    if cost.sent is None or cost.rows is None or cost.most_rows is None:
        return cost.messages, "?", "?", "?"
    rows, memory = _number(cost.rows), gigabytes(float(cost.rows * routing.row))
    if cost.most_rows != cost.rows:
        rows += f" ({_number(cost.most_rows)})"
        memory += f" ({gigabytes(float(cost.most_rows * routing.row))})"
    return cost.messages, gigabytes(float(cost.sent)), rows, memory


def _number(value: Fraction) -> str:
    return f"{float(value):g}"
