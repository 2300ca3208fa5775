"""PL108."""

from collections.abc import Iterator

from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Severity
from planc.styles.registry import get


@define("PL108", "style-arguments", Severity.ERROR)
class StyleArguments(Rule):
    """Looks for arguments that a style doesn't take.

    Example:

        tp_plan:
          model.layers.*.mlp.gate_up_proj: packed_colwise(parts=2)

    Use instead:

        tp_plan:
          model.layers.*.mlp.gate_up_proj: packed_colwise(split_factor=2)
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        for rule in context.rules():
            style = get(rule.style.name, rule.plan)
            objection = style.argument_objection(dict(rule.style.arguments)) if style else None
            if style is None or objection is None:
                continue
            legal = ", ".join(f"{name}={value}" for name, value in style.arguments.items())
            yield self.code.found(
                objection,
                span=rule.style.span,
                label="not an argument of this style" if legal else "takes no arguments",
                key=rule.key.text,
                help=(f"`{style.name}({legal})` is the default" if legal else f"write `{style.name}`",),
            )
