"""PL408."""

from collections.abc import Iterator

from planc.check.flow_findings import findings
from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Severity
from planc.flow.problems import Kind


@define("PL408", "needs-sharded-input", Severity.ERROR)
class NeedsShard(Rule):
    """Looks for whole values that flow into something that takes a shard.

    `rowwise` takes each rank's part of the input features to be there already. A whole input doesn't fit its weight.

    Example, on Llama:

        tp_plan:
          model.layers.*.mlp.gate_proj: replicate
          model.layers.*.mlp.up_proj: replicate

    Use instead `rowwise_split_input` on `down_proj`, which takes its part of a whole input.
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        yield from findings(context, self.code, Kind.NEEDS_SHARD)
