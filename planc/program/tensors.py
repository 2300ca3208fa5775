"""Lowering of TP and EP assignments by their styles."""

from collections.abc import Iterable, Iterator

from planc.ir.operations import Operation
from planc.layouts.layout import Axis
from planc.program.compilation import Compilation, provenance
from planc.program.program import Instruction, Phase, Program
from planc.resolve.resolved import Assignment
from planc.resolve.tied import as_tied
from planc.styles.style import Lowering, Style, StyleError


def shard_tensors(program: Program, compilation: Compilation) -> tuple[Instruction, ...]:
    """Add the TP plan's operations on axis `tp`."""
    if program.layout.tp_size == 1:
        return program.instructions
    return (*program.instructions, *lower_assignments(compilation.resolved.tp.values(), "tp", "tp", compilation))


def lower_assignments(
    assignments: Iterable[Assignment], phase: Phase, axis: Axis, compilation: Compilation
) -> Iterator[Instruction]:
    """The operations of each assignment, in order; faults go to `compilation`."""
    to = Lowering(compilation.manifest, compilation.resolved.layout, axis)
    for assignment in assignments:
        style = compilation.style(assignment.rule, assignment.target)
        if style is None:
            continue
        style = as_tied(style, assignment, compilation.resolved.plan(assignment.rule.plan), compilation.manifest)
        source = provenance(assignment.rule)
        try:
            operations = tuple(_lower(style, assignment, to))
        except StyleError as error:
            compilation.refuse(assignment.rule, assignment.target, str(error))
            continue
        yield from (Instruction(phase, operation, source) for operation in operations)


def _lower(style: Style, assignment: Assignment, to: Lowering) -> Iterator[Operation]:
    if assignment.is_parameter:
        module, parameter = to.manifest.parameters[assignment.target]
        if objection := style.parameter_objection(module, parameter):
            raise StyleError(objection)
        return style.lower_parameter(assignment.target, parameter, to)
    module = to.manifest.modules[assignment.target]
    if objection := style.model_objection(to.manifest) or style.objection(module):
        raise StyleError(objection)
    return style.lower_module(module, to)
