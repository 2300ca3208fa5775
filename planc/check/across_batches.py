"""EP rules that act between ranks with different batches."""

from typing import TYPE_CHECKING

from planc.flow.analysis import dispatching, is_inside
from planc.layouts.placement import Partial
from planc.model.manifest import Module
from planc.resolve.resolved import Assignment
from planc.styles.custom import is_not_known
from planc.styles.types import StyleType

if TYPE_CHECKING:
    from planc.check.rule import CheckContext


def mixed(context: "CheckContext") -> list[str]:
    """The modules and parameters outside dispatched experts that an EP rule shards, or whose values or gradients it
    moves, where an EP group is larger than a TP group; in order of application.
    """
    if context.layout.ep_size <= context.layout.tp_size:
        return []
    closed = dispatching(context.resolved, context.manifest)
    if not closed:
        return []  # an EP plan that dispatches nowhere isn't applied, as PL216 says
    return [
        name
        for name, assignment in context.resolved.ep.items()
        if not is_inside(name, closed) and _acts(assignment, context)
    ]


def _acts(assignment: Assignment, context: "CheckContext") -> bool:
    style = context.style(assignment)
    if style is None or is_not_known(style):
        return False
    if "ep" not in style.plans or style.model_objection(context.manifest):
        return False  # refused by PL107 or PL109
    if assignment.is_parameter:
        module, entry = context.manifest.parameters[assignment.target]
        # A counted part of experts that nothing dispatches to is PL216's.
        is_counted = style.name == "grouped_gemm"
        return style.placement(entry) is not None and not style.parameter_objection(module, entry) and not is_counted
    module = context.manifest.modules[assignment.target]
    return style.objection(module) is None and _moves(style.type(module), module)


def _moves(kind: StyleType, module: Module) -> bool:
    gathers = kind.yields is not None and kind.output != kind.yields
    splits = kind.input != kind.computes
    sums = isinstance(kind.input_gradient, Partial) or (kind.sums_parameter_gradients and bool(module.parameters))
    return gathers or splits or sums or kind.distributed or kind.divides_input or kind.sums_output_gradient
