"""PL404."""

from collections.abc import Iterator

from planc.check.flow_findings import findings
from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Severity
from planc.flow.problems import Kind


@define("PL404", "bias-on-every-rank", Severity.ERROR)
class BiasOnEveryRank(Rule):
    """Looks for biases that every rank adds to its summand.

    The sum over ranks then has the bias as many times as there are ranks. `rowwise` hides the bias while a Linear runs
    and adds it once after the sum; a sum by another rule doesn't.

    Example, experts with biases that are summed by `moe_tp_experts` while their biases stay whole:

        tp_plan:
          model.layers.*.mlp.experts.down_proj: rowwise
          model.layers.*.mlp.experts: moe_tp_experts

    Use instead whole experts per rank (an `ep_plan`), where nothing is summed.
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        yield from findings(context, self.code, Kind.BIAS_ON_EVERY_RANK)
