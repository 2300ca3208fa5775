"""PL414."""

from collections.abc import Iterator

from planc.check.flow_findings import findings
from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Severity
from planc.flow.problems import Kind


@define("PL414", "style-does-not-fit-call", Severity.ERROR)
class StyleDoesNotFitCall(Rule):
    """Looks for styles that can't handle how the model calls the module.

    A style transforms a module's first positional input and its one output. A module that is called by keywords alone,
    or returns several values, makes it fail in the forward.

    Example, on Llama, whose attention returns two values:

        tp_plan:
          model.layers.*.self_attn: all_reduce

    Use instead a rule on the projection whose output it is: `o_proj: rowwise`.
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        yield from findings(context, self.code, Kind.CALL)
