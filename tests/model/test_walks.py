"""Walks along a dataflow made by hand: 0 is split into 1 and 2, viewed as 3 and 4, added to 5, and 6 is its product."""

from collections.abc import Callable, Iterable

from planc.model.dataflow import Flow, Operation
from planc.model.walks import ahead, behind


def operation(name: str, inputs: list[int], outputs: list[int]) -> Operation:
    return Operation.of(name, 0, outputs, [["v", value] for value in inputs])


OPERATIONS = (
    operation("split", [0], [1, 2]),
    operation("view", [1], [3]),
    operation("view", [2], [4]),
    operation("add", [3, 4], [5]),
    operation("linear", [5], [6]),
)
FLOW = Flow(("",), ((4,),) * 8, (True,) * 8, {0: "input:x", 7: "constant"}, OPERATIONS, (6,), ())


def through(*names: str) -> Callable[[Operation], bool]:
    return lambda op: op.name in names


def found(walk: Iterable[tuple[int, Operation]]) -> list[tuple[int, str]]:
    return [(value, op.name) for value, op in walk]


def test_the_nearest_come_first_and_once() -> None:
    assert found(ahead(FLOW, 0, through("split"))) == [(1, "view"), (2, "view")]
    assert found(ahead(FLOW, 0, through("split", "view"))) == [(3, "add")]
    assert found(behind(FLOW, 5, through("add", "view"))) == [(1, "split")]
    assert found(behind(FLOW, 6, through())) == [(6, "linear")]


def test_values_that_carry_nothing_are_not_followed() -> None:
    assert found(ahead(FLOW, 0, through("split"), lambda value: value != 1)) == [(2, "view")]
    assert found(behind(FLOW, 5, through("add"), lambda value: value != 3)) == [(4, "view")]


def test_the_ends_of_the_flow() -> None:
    assert found(ahead(FLOW, 6, through())) == found(behind(FLOW, 0, through())) == []
    assert found(ahead(FLOW, 7, through())) == []


def test_a_flow_that_comes_back_to_itself_ends() -> None:
    operations = (operation("add", [0], [1]), operation("add", [1], [0]), operation("linear", [0], [2]))
    around = Flow(("",), ((4,),) * 3, (True,) * 3, {}, operations, (2,), ())
    assert found(ahead(around, 0, through("add"))) == [(0, "linear")]
