"""PL301."""

from collections.abc import Iterator

from planc.check.head_cuts import describe, head_cuts
from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Severity


@define("PL301", "kv-heads-not-divisible", Severity.ERROR)
class KvHeadsNotDivisible(Rule):
    """Looks for key and value projections that are cut through a KV head.

    A model with grouped-query attention has few KV heads. When `k_proj` and `v_proj` stay sharded, each rank views its
    features as whole heads; half a head fails in the forward, or is taken for a whole one of another size. A
    projection that is gathered or replicated has no such constraint.

    Example, with 4 KV heads:

        tp_size: 8
        tp_plan:
          model.layers.*.self_attn.k_proj: colwise

    Use instead a size that divides the KV heads:

        tp_size: 4
        fsdp_size: 2
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        for cut in head_cuts(context):
            if cut.is_key_value:
                yield describe(cut, self.code, context)
