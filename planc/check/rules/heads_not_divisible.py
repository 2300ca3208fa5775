"""PL302."""

from collections.abc import Iterator

from planc.check.head_cuts import describe, head_cuts
from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Severity


@define("PL302", "heads-not-divisible", Severity.ERROR)
class HeadsNotDivisible(Rule):
    """Looks for projections of attention that are cut through a head.

    When the query projection, or a fused one, stays sharded, each rank views its features as whole heads, and the
    output projection takes whole heads in. Where the projection is gathered or replicated the heads don't matter.

    Example, with 40 heads:

        tp_size: 16
        tp_plan:
          model.layers.*.self_attn.q_proj: colwise

    Use instead a size that divides the heads:

        tp_size: 8
        fsdp_size: 2
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        for cut in head_cuts(context):
            if not cut.is_key_value:
                yield describe(cut, self.code, context)
