"""PL406."""

from collections.abc import Iterator

from planc.check.flow_findings import findings
from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Severity
from planc.flow.problems import Kind


@define("PL406", "reduced-over-shard", Severity.ERROR)
class ReducedOverShard(Rule):
    """Looks for norms, softmaxes and the like that go over a dim of which each rank has a part.

    A norm over all heads on a rank's share of them divides by the wrong mean; a router's softmax over some of the
    experts has the wrong sum. The model runs, and its results are wrong.

    Example, on OLMoE, whose query norm goes over all heads:

        tp_plan:
          model.layers.*.self_attn.q_proj: colwise

    Use instead:

        tp_plan:
          model.layers.*.self_attn.q_proj: colwise_gather_output
          model.layers.*.self_attn.o_proj: rowwise_split_input
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        yield from findings(context, self.code, Kind.REDUCED_OVER_SHARD)
