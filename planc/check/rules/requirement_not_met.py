"""PL307."""

from collections.abc import Iterator

from planc.check.places import size_labels
from planc.check.requirements import COMPARISONS, SIZES, RequirementError, evaluate, known_names
from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Severity
from planc.syntax.plan import Binary, Expression, Name, Not, Requirement


@define("PL307", "requirement-not-met", Severity.ERROR)
class RequirementNotMet(Rule):
    """Looks for conditions under `require` that the layout and the model don't meet.

    `require` holds a team's own limits, over mesh sizes and fields of the model's config.

    Example, at `ep_size: 16`:

        require:
          - ep_size <= 8

    Use instead a layout that meets them:

        ep_size: 8
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        names = known_names(context)
        for requirement in context.plan.require:
            try:
                if not evaluate(requirement.expression, names):
                    yield self._not_met(requirement, context, names)
            except RequirementError:
                continue  # PL308

    def _not_met(self, requirement: Requirement, context: CheckContext, names: dict[str, int]) -> Diagnostic:
        used = dict.fromkeys(_names(requirement.expression))
        return self.code.found(
            f"`{requirement.text}` is not met: {_both_sides(requirement.expression, names)}",
            span=requirement.span,
            label="required here",
            labels=size_labels(context, *(name for name in used if name in SIZES)),
            notes=(", ".join(f"{name} = {names[name]}" for name in used),) if used else (),
        )


def _names(expression: Expression) -> Iterator[str]:
    if isinstance(expression, Name):
        yield expression.name
    elif isinstance(expression, Not):
        yield from _names(expression.operand)
    elif isinstance(expression, Binary):
        yield from _names(expression.left)
        yield from _names(expression.right)


def _both_sides(expression: Expression, names: dict[str, int]) -> str:
    if isinstance(expression, Binary) and expression.operator in COMPARISONS:
        left, right = evaluate(expression.left, names), evaluate(expression.right, names)
        return f"{left} {expression.operator} {right} is false"
    if isinstance(expression, Binary) and expression.operator == "and":
        failing = expression.left if not evaluate(expression.left, names) else expression.right
        return _both_sides(failing, names)
    if isinstance(expression, Binary) and expression.operator == "or":
        return f"{_both_sides(expression.left, names)}, and {_both_sides(expression.right, names)}"
    return "it is false"
