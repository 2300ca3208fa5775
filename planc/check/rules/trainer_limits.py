"""PL602."""

from collections.abc import Iterator

from planc.check.places import size_labels, size_span
from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Severity


@define("PL602", "trainer-counts-one-batch", Severity.ERROR)
class TrainerCountsOneBatch(Rule):
    """Looks for token dispatch under the Trainer of transformers.

    The Trainer counts batches and tokens as if the ranks of a TP group shared one batch and there were `fsdp_size`
    data-parallel slices, which is the layout of `ep_implementation: all_reduce`. `all_to_all` is not counted yet, and
    `auto` dispatches in training.

    Example:

        target: trainer
        tp_size: 4
        ep_size: 4

    Use instead:

        target: trainer
        tp_size: 4
        ep_size: 4
        ep_implementation: all_reduce

    Source: the guide to expert parallelism of transformers 5.23.
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        layout = context.layout
        if context.target != "trainer" or layout.ep_size == 1 or layout.ep_implementation == "all_reduce":
            return
        yield self.code.found(
            f"the Trainer doesn't count the batches of `ep_implementation: {layout.ep_implementation}`",
            span=size_span(context, "ep_implementation", "ep_size", "target"),
            label="dispatches tokens in training",
            labels=size_labels(context, "target"),
            help=("`ep_implementation: all_reduce`, with ep_size == tp_size ",),
        )
