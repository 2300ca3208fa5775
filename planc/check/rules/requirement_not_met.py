"""PL307."""

from collections.abc import Iterator, Mapping

from planc.check.places import size_labels
from planc.check.requirements import SIZES, known_names, numbers
from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Severity
from planc.syntax.plan import Requirement
from planc.syntax.requirements import Sides, culprits, holds, names


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
        values = numbers(known_names(context))
        for requirement in context.plan.require:
            if holds(requirement.expression, values) is False:
                yield self._not_met(requirement, context, values)

    def _not_met(self, requirement: Requirement, context: CheckContext, values: Mapping[str, int]) -> Diagnostic:
        used = [name for name in names(requirement.expression) if name in values]
        why = ", and ".join(map(_in_numbers, culprits(requirement.expression, values)))
        return self.code.found(
            f"`{requirement.text}` is not met: {why}",
            span=requirement.span,
            label="required here",
            labels=size_labels(context, *(name for name in used if name in SIZES)),
            notes=(", ".join(f"{name} = {values[name]}" for name in used),) if used else (),
        )


def _in_numbers(sides: Sides) -> str:
    return f"{sides.left} {sides.comparison.operator} {sides.right} is {str(sides.holds).lower()}"
