"""PL405."""

from collections.abc import Iterator

from planc.check.flow_findings import findings
from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Severity
from planc.flow.problems import Kind


@define("PL405", "packed-parts-crossed", Severity.ERROR)
class PackedPartsCrossed(Rule):
    """Looks for packed features of which a rank takes apart its block as if it were the whole.

    A fused projection `[gate | up]` cut into contiguous blocks gives one rank the gate and the other the up part; each
    then halves its block. Shapes fit, the model runs, and its results are wrong.

    Example, on Qwen3-MoE:

        tp_plan:
          model.layers.*.mlp.experts.gate_up_proj: colwise

    Use instead:

        tp_plan:
          model.layers.*.mlp.experts.gate_up_proj: packed_colwise
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        yield from findings(context, self.code, Kind.PACKED_CUT)
