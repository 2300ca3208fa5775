"""PL401."""

from collections.abc import Iterator

from planc.check.flow_findings import findings
from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Severity
from planc.flow.problems import Kind


@define("PL401", "needs-whole-input", Severity.ERROR)
class NeedsWhole(Rule):
    """Looks for shards that flow into something that needs the whole.

    A `colwise` projection leaves each rank with a part of its output features. What reads them must be sharded alike
    (a `rowwise` projection), or the features must be gathered. Otherwise shapes don't fit, or each rank computes with a
    part as if it were all there is.

    Example, on Llama:

        tp_plan:
          model.layers.*.mlp.down_proj: colwise

    Use instead a pair:

        tp_plan:
          model.layers.*.mlp.{gate,up}_proj: colwise
          model.layers.*.mlp.down_proj: rowwise
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        yield from findings(context, self.code, Kind.NEEDS_WHOLE)
