"""PL214."""

from collections import defaultdict
from collections.abc import Iterator

from planc.check.places import counted, size_labels
from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Severity
from planc.syntax.plan import PlanRule


@define("PL214", "size-exceeds-dim", Severity.WARNING)
class SizeExceedsDim(Rule):
    """Looks for axes with more ranks than the dim they shard is wide.

    The last ranks hold nothing of such a parameter. Widths that don't divide are legal, and so is an empty shard, but
    it is hardly ever meant.

    Example, a gate of one output feature:

        tp_size: 8
        tp_plan:
          model.layers.*.mlp.shared_expert_gate: colwise_gather_output

    Use instead:

        tp_plan:
          model.layers.*.mlp.shared_expert_gate: replicate
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        found: dict[tuple[PlanRule, int, int], list[str]] = defaultdict(list)
        for shard in context.sharded:
            ranks, width = context.layout.size(shard.axis), shard.size // shard.parts
            # Experts have a rule of their own: PL204.
            if width < ranks and not shard.module.entry.experts:
                found[shard.assignment.rule, width, ranks].append(shard.name)
        for (rule, width, ranks), targets in found.items():
            size = f"{rule.plan}_size"
            yield self.code.found(
                f"{size}={ranks} ranks share {counted(width, 'feature')} of `{targets[0]}`",
                span=rule.key.span,
                label=f"{ranks - width} of {ranks} ranks hold nothing of {counted(len(targets), 'parameter')}",
                labels=size_labels(context, size),
                key=rule.key.text,
                targets=tuple(targets[:3]),
                target_count=len(targets),
                help=("keep it whole: `replicate`",),
            )
