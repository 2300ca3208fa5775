"""Walks along the dataflow: what made a value, and what reads it, seen through operations that don't matter.

networkx finds the way; importing it takes as long as a check, and a check walks nowhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from planc.model.dataflow import Flow, Node, Operation

Through = Callable[[Operation], bool]
Carries = Callable[[int], bool]


def behind(flow: Flow, value: int, through: Through, carries: Carries | None = None) -> Iterator[tuple[int, Operation]]:
    """The nearest operations that `value` was made by, seen through those for which `through` holds.

    Each comes once, nearest first, with the one of its outputs that the walk came by. Values for which `carries`
    doesn't hold aren't followed.
    """
    return _walk(flow, value, flow.graph.predecessors, through, carries)


def ahead(flow: Flow, value: int, through: Through, carries: Carries | None = None) -> Iterator[tuple[int, Operation]]:
    """The nearest operations that read `value`, as `behind`; each with the one of its inputs that the walk came by."""
    return _walk(flow, value, flow.graph.successors, through, carries)


def _walk(
    flow: Flow, value: int, step: Callable[[Node], Iterable[Node]], through: Through, carries: Carries | None
) -> Iterator[tuple[int, Operation]]:
    import networkx

    def onward(node: Node) -> Iterator[Node]:
        kind, number = node
        if kind == "value":
            yield from step(node)
        elif through(flow.operations[number]):
            yield from (found for found in step(node) if carries is None or carries(found[1]))

    start: Node = ("value", value)
    if start not in flow.graph:
        return
    for (_, passed), (kind, number) in networkx.generic_bfs_edges(flow.graph, start, onward):
        if kind == "operation" and not through(flow.operations[number]):
            yield passed, flow.operations[number]
