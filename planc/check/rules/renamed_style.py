"""PL901."""

from collections.abc import Iterator

from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Edit, Fix, Severity
from planc.styles.registry import get


@define("PL901", "renamed-style", Severity.WARNING)
class RenamedStyle(Rule):
    """Looks for old names of styles.

    `colwise_rep` is now `colwise_gather_output`, `rowwise_rep` is now `rowwise_split_input`. The old names still work.

    Example:

        tp_plan:
          lm_head: colwise_rep

    Use instead:

        tp_plan:
          lm_head: colwise_gather_output
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        for rule in context.rules():
            style = get(rule.style.name, rule.plan)
            new = style.renamed_to if style else None
            if new:
                yield self.code.found(
                    f"`{rule.style.name}` is an old name of `{new}`",
                    span=rule.style.span,
                    label="renamed",
                    key=rule.key.text,
                    fix=Fix(f"write `{new}`", (Edit(rule.style.span, new),), safe=not rule.style.arguments),
                )
