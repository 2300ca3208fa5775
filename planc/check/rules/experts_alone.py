"""PL116."""

from collections.abc import Iterator

from planc.check.expert_sizes import experts_alone
from planc.check.places import size_labels, size_span
from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Severity
from planc.resolve.experts_alone import experts_are_alone


@define("PL116", "experts-alone", Severity.NOTE)
class ExpertsAlone(Rule):
    """Says that a plan splits the experts alone, which transformers 5.24.0 documents and refuses.

    With `tp_plan: {}` beside an `ep_size` the dense modules stay whole on every rank, the ranks of a TP group share a
    batch, and only the experts are split: the documents' fastest layout. planc's own runtime runs it. transformers
    5.24.0 raises for a `tp_size` above 1 without a TP plan, whatever the EP plan does: an error where its runtime
    runs the plan, under the Trainer and in a `DistributedConfig` that planc makes.

    Example:

        target: trainer
        tp_size: 4
        ep_size: 4
        tp_plan: {}

    Use instead, with a batch of its own on each rank:

        target: trainer
        fsdp_size: 4
        ep_size: 4

    Source: the guide to expert parallelism of transformers 5.23 (`enable_expert_parallel` is `ep_size=tp_size,
    tp_plan={}`); `DistributedMixin._resolve_parallel_plans`, transformers 5.24.0.
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        if not experts_are_alone(context.plan, context.resolved):
            return
        size = context.layout.tp_size
        is_theirs = context.target == "trainer"
        yield self.code.found(
            f"tp_size={size} with an empty `tp_plan` splits the experts alone: transformers 5.24.0 refuses to load it",
            severity=Severity.ERROR if is_theirs else self.code.severity,
            span=size_span(context, "tp_size", "enable_expert_parallel"),
            label=f"each batch is computed by {size} ranks, which hold the dense modules whole",
            labels=size_labels(context, "ep_size", "enable_expert_parallel"),
            notes=("planc's own runtime runs it",),
            help=(experts_alone(context.layout),) if is_theirs else (),
        )
