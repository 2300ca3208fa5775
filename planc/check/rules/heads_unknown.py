"""PL309."""

from collections import defaultdict
from collections.abc import Iterator

from planc.check.head_cuts import attention_above, sharded_heads
from planc.check.places import counted, size_labels
from planc.check.rule import CheckContext, Rule
from planc.check.sharding import is_last
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Severity
from planc.model.manifest import Attention
from planc.syntax.plan import PlanRule


@define("PL309", "heads-unknown", Severity.UNKNOWN)
class HeadsUnknown(Rule):
    """Says where a projection of an attention module is cut and nothing tells which heads its features are.

    Heads are facts of the model, watched in a run of a small copy. Where that failed, a projection is recognised by
    its width; where that fails too, and the axis doesn't divide the module's head counts, the verdict is unknown.

    Example, on a module of 6 heads whose projection has features of its own:

        tp_size: 4
        tp_plan:
          layers.*.attention.mixed: colwise

    Use instead a size that divides the heads, or `planc verify`.
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        size = context.layout.tp_size
        found: dict[tuple[PlanRule, Attention], list[str]] = defaultdict(list)
        for hooked in context.hooked:
            _, attention = attention_above(hooked.module, context)
            if hooked.axis != "tp" or attention is None or not is_last(hooked.type.output):
                continue
            uneven = attention.num_heads % size or attention.num_key_value_heads % size
            if uneven and hooked.module.entry.heads is None and sharded_heads(hooked, attention) is None:
                found[hooked.assignment.rule, attention].append(hooked.module.name)
        for (rule, attention), targets in found.items():
            yield self.code.found(
                f"which heads the features of `{targets[0].rpartition('.')[2]}` are isn't known, and tp_size={size} "
                f"doesn't divide {attention.num_heads} heads and {attention.num_key_value_heads} KV heads",
                span=rule.key.span,
                label=counted(len(targets), "module"),
                labels=size_labels(context, "tp_size"),
                key=rule.key.text,
                targets=tuple(targets[:3]),
                target_count=len(targets),
                help=("`planc verify` compares with one process",),
            )
