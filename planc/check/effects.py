"""Whether a rule does anything where it stands."""

from planc.check.rule import CheckContext
from planc.resolve.resolved import Assignment
from planc.styles.custom import is_not_known
from planc.styles.types import StyleType


def acts(assignment: Assignment, context: CheckContext) -> bool:
    """Whether the style shards the parameter, or hooks the module's forward with an effect.

    True for what has a finding of its own (unknown styles, objections) and for custom styles.
    """
    style = context.style(assignment)
    if style is None or is_not_known(style):
        return True
    if assignment.is_parameter:
        module, entry = context.manifest.parameters[assignment.target]
        return style.placement(entry) is not None or style.parameter_objection(module, entry) is not None
    module = context.manifest.modules[assignment.target]
    if style.objection(module) is not None:
        return True
    kind = style.type(module)
    # Running on local parameters, or summing their gradients, is nothing where there are none.
    only_parameters = kind in (StyleType(runs_local=True), StyleType(sums_parameter_gradients=True))
    return bool(module.parameters) if only_parameters else kind != StyleType()
