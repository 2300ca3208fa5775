"""PL207."""

from collections.abc import Iterator

from planc.check.places import size_labels, size_span
from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Severity
from planc.styles.registry import needs_shared_batch


@define("PL207", "ep-needs-shared-batch", Severity.ERROR)
class EpNeedsSharedBatch(Rule):
    """Looks for `all_reduce` and `deepgemm_megamoe` where the ranks of an expert group hold different batches.

    Both run every rank's experts on the one batch that the whole group holds, so the expert group must be the TP
    group: `ep_size == tp_size`. With more ranks the tokens of the other batches would never reach the experts. So does
    a custom implementation whose class says `needs_shared_batch = True`.

    Example:

        tp_size: 2
        fsdp_size: 4
        ep_size: 4
        ep_implementation: all_reduce

    Use instead:

        ep_implementation: all_to_all

    Source: `EPImplementation.needs_shared_batch`, transformers 5.24.0, `distributed/expert_parallel.py`.
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        layout = context.layout
        name = layout.ep_implementation
        if layout.ep_size in (1, layout.tp_size) or not needs_shared_batch(name):
            return
        yield self.code.found(
            f"`{name}` needs ep_size == tp_size, and ep_size={layout.ep_size}, tp_size={layout.tp_size}",
            span=size_span(context, "ep_implementation", "ep_size"),
            label="runs on the one batch that a TP group shares",
            labels=size_labels(context, "ep_size", "tp_size"),
            notes=(f"an expert group of {layout.ep_size} holds {layout.ep_size / layout.tp_size:g} different batches",),
            help=(f"`ep_implementation: all_to_all` takes any layout; or ep_size={layout.tp_size}",),
        )
