"""PL218."""

from collections import defaultdict
from collections.abc import Iterator

from planc.check.across_batches import mixed
from planc.check.places import counted, size_labels
from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Severity
from planc.syntax.plan import PlanRule


@define("PL218", "expert-rule-across-batches", Severity.ERROR)
class ExpertRuleAcrossBatches(Rule):
    """Looks for EP rules on dense modules where the ranks of an expert group hold different batches.

    With `ep_size` above `tp_size` an expert group spans several batches. Dispatched tokens find their way back to
    their batch; a style that shards a dense module, sums or gathers over the group would combine values that don't
    belong together.

    Example:

        fsdp_size: 2
        ep_size: 2
        ep_plan:
          model.layers.*.self_attn.q_proj: colwise

    Use instead the TP plan, whose groups share their batch:

        fsdp_size: 2
        tp_size: 2
        ep_size: 2
        tp_plan:
          model.layers.*.self_attn.q_proj: colwise

    Source: `DistributedMixin.maybe_distribute_model` and `apply_expert_parallelism`, transformers 5.24.0, which run
    these styles on the mesh `ep`.
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        found: dict[PlanRule, list[str]] = defaultdict(list)
        for name in mixed(context):
            found[context.resolved.ep[name].rule].append(name)
        layout = context.layout
        batches = layout.ep_size // layout.tp_size
        instead = "put it into `tp_plan`" if layout.tp_size > 1 else "leave it out"
        ranks = counted(layout.tp_size, "rank")
        for rule, targets in found.items():
            yield self.code.found(
                f"`{rule.key.text}: {rule.style.text}` would combine values or gradients of {batches} batches: "
                f"an expert group of {layout.ep_size} ranks spans {batches} TP groups of {ranks}",
                span=rule.span,
                label=counted(len(targets), "target"),
                labels=size_labels(context, "ep_size", "tp_size"),
                key=rule.key.text,
                targets=tuple(targets[:3]),
                target_count=len(targets),
                help=(f"over an EP group only experts are spread: {instead}",),
            )
