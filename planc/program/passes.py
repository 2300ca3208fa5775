"""Running passes: each has a contract, and the verifier looks at what it made."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from planc.program.compilation import Compilation
from planc.program.errors import ProgramError, by_kind
from planc.program.program import Instruction, Program
from planc.program.verify import verify

# Called with a pass's name and the program that it left.
DumpAfter = Callable[[str, Program], None]


@dataclass(frozen=True, slots=True)
class Pass:
    """A named step; `contract` says what it promises of the instructions that `run` returns."""

    name: str
    contract: str
    run: Callable[[Program, Compilation], tuple[Instruction, ...]]


def run(
    passes: Iterable[Pass], program: Program, compilation: Compilation, dump_after: DumpAfter | None = None
) -> Program:
    """Run `passes` in order. Raises ProgramError, with the pass's name, where one leaves an unsound program.

    A pass whose input the plan itself made impossible notes that in `compilation.faults`.
    """
    for step in passes:
        program = replace(program, instructions=step.run(program, compilation))
        if dump_after is not None:
            dump_after(step.name, program)
        faults = verify(program, compilation.manifest)
        if faults:
            raise ProgramError(f"after `{step.name}` the program is not sound", (*compilation.faults, *by_kind(faults)))
    return program
