"""The rules of single operations over whole values and partial sums, against spmd_types' own table."""

import pytest

from planc.flow import operations
from planc.flow.problems import MismatchError
from planc.flow.step import RULES, Step
from planc.flow.types import WHOLE, PartialSum, Type
from planc.model.dataflow import Flow, Operation

operations.load()
P = PartialSum()

# What spmd_types 0.3.1 infers on a fake process group, R for its types R and I; "error" where it refuses.
TABLE = {
    "add": {"RR": "R", "RP": "error", "PR": "error", "PP": "P"},
    "mul": {"RR": "R", "RP": "P", "PR": "P", "PP": "error"},
    "div": {"RR": "R", "RP": "error", "PR": "P", "PP": "error"},
    "matmul": {"RR": "R", "RP": "P", "PR": "P", "PP": "error"},
    "cat": {"RR": "R", "RP": "error", "PR": "error", "PP": "P"},
    "silu": {"R": "R", "P": "error"},
    "softmax": {"R": "R", "P": "error"},
    "view": {"R": "R", "P": "P"},
    "sum": {"R": "R", "P": "P"},
}
EXTRA = {"view": (4, 4), "sum": (-1,), "softmax": (-1,)}


@pytest.mark.parametrize(("name", "inputs"), [(name, inputs) for name in TABLE for inputs in TABLE[name]])
def test_rule_agrees_with_spmd_types(name: str, inputs: str) -> None:
    assert inferred(name, inputs) == TABLE[name][inputs]


def inferred(name: str, inputs: str) -> str:
    kinds: list[Type] = [P if letter == "P" else WHOLE for letter in inputs]
    values = [["v", number] for number in range(len(inputs))]
    arguments = [values] if name == "cat" else [*values, *EXTRA.get(name, ())]
    op = Operation.of(name, 0, [len(inputs)], arguments)
    shapes = tuple((4, 4) for _ in (*inputs, "out"))
    flow = Flow(("",), shapes, (True,) * len(shapes), {}, (op,), (len(inputs),), ())
    step = Step(flow, op, op.inputs, lambda value: kinds[value], ranks=2)
    try:
        result = RULES[name](step)
    except MismatchError:
        return "error"
    kind = result[0] if isinstance(result, list) else result
    return str(kind)
