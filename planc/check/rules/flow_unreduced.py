"""PL402."""

from collections.abc import Iterator

from planc.check.flow_findings import findings
from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Severity
from planc.flow.problems import Kind


@define("PL402", "unreduced-sum", Severity.ERROR)
class UnreducedSum(Rule):
    """Looks for partial sums that are used before they are summed.

    A product over sharded features leaves each rank with a summand. Until the ranks have added theirs up, only linear
    operations are right: a norm, an activation, or an addition to a complete value is not.

    Example, on Qwen3-MoE, whose experts are sharded by features:

        tp_plan:
          model.layers.*.mlp.experts: local_params

    Use instead a style that sums:

        tp_plan:
          model.layers.*.mlp.experts: moe_tp_experts
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        yield from findings(context, self.code, Kind.UNREDUCED)
