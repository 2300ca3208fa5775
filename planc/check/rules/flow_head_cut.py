"""PL409."""

from collections.abc import Iterator

from planc.check.flow_findings import findings
from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Severity
from planc.flow.problems import Kind


@define("PL409", "head-cut", Severity.ERROR)
class HeadCut(Rule):
    """Looks for views that a rank's shard doesn't fit: by heads, or by a number of the config.

    A projection's output is viewed as heads. A shard of half a head doesn't fit; nor does any shard fit a view that
    spells out the model's number of heads.

    Example, with two KV heads:

        tp_size: 4

    Use instead a size that divides the heads, or gather the projection:

        tp_plan:
          model.layers.*.self_attn.k_proj: colwise_gather_output
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        yield from findings(context, self.code, Kind.HEAD_CUT)
