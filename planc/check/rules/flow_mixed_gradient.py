"""PL412."""

from collections.abc import Iterator

from planc.check.flow_findings import findings
from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Severity
from planc.flow.problems import Kind


@define("PL412", "mixed-gradient", Severity.ERROR)
class MixedGradient(Rule):
    """Looks for values whose gradient is complete from one side and partial from another.

    A whole value that is read by a sharded computation gets a share of its gradient on each rank, which must be summed
    where it is read (`colwise` does that at its input). Added to a complete gradient from elsewhere, no later sum can
    mend it.

    Example, on DeepSeek-V3, whose rotary features go past the sharded `kv_b_proj`:

        tp_plan:
          model.layers.*.self_attn.kv_a_proj_with_mqa: replicate

    Use instead:

        tp_plan:
          model.layers.*.self_attn.kv_a_proj_with_mqa: mla_kv_a_proj
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        yield from findings(context, self.code, Kind.MIXED_GRADIENT)
