"""Passes that change no meaning."""

from planc.ir.operations import Operation
from planc.program.compilation import Compilation
from planc.program.encoding import in_canonical_order
from planc.program.program import Instruction, Program


def deduplicate(program: Program, compilation: Compilation) -> tuple[Instruction, ...]:
    """The first of equal operations: each expert weight says how many experts its module holds."""
    first: dict[Operation, Instruction] = {}
    for instruction in program.instructions:
        first.setdefault(instruction.operation, instruction)
    return tuple(first.values())


def canonicalize(program: Program, compilation: Compilation) -> tuple[Instruction, ...]:
    """All layers of a kind together, as a file has them."""
    return in_canonical_order(program.instructions)
