"""PL410."""

from collections.abc import Iterator

from planc.check.flow_findings import findings
from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Severity
from planc.flow.problems import Kind


@define("PL410", "shards-disagree", Severity.ERROR)
class ShardsDisagree(Rule):
    """Looks for values that are combined though they are cut differently, or one is cut and the other whole.

    Query heads on a rank must meet their own key and value heads; gate and up features must be the same ones. Otherwise
    shapes don't fit, or a rank combines what doesn't belong together.

    Example, on Llama:

        tp_plan:
          model.layers.*.self_attn.k_proj: replicate
          model.layers.*.self_attn.v_proj: replicate

    Use instead the same cut for all three projections.
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        yield from findings(context, self.code, Kind.SHARDS_DISAGREE)
