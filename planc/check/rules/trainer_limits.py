"""PL602, PL607."""

from collections.abc import Iterator

from planc.check.places import size_labels, size_span
from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Severity


@define("PL602", "trainer-counts-one-batch", Severity.WARNING)
class TrainerCountsOneBatch(Rule):
    """Looks for token dispatch under the Trainer of transformers.

    The documents say that the Trainer counts batches and tokens as if the ranks of a TP group shared one batch and
    there were `fsdp_size` data-parallel slices, which is the layout of `ep_implementation: all_reduce`, and that it
    doesn't count `all_to_all` yet; `auto` dispatches in training. With transformers 5.24.0 its losses, gradient norms
    and clipped steps were those of one process wherever dispatch was tried, as the ranks of a TP group share one batch
    there as well.

    Example:

        target: trainer
        tp_size: 4
        ep_size: 4

    Use instead, to be within the documents:

        target: trainer
        tp_size: 4
        ep_size: 4
        ep_implementation: all_reduce

    Source: the guide to expert parallelism of transformers 5.23; `tests/jobs/test_trainer.py` for 5.24.0.
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        layout = context.layout
        if context.target != "trainer" or layout.ep_size == 1 or layout.ep_implementation == "all_reduce":
            return
        yield self.code.found(
            "the documents say that the Trainer doesn't count the batches of "
            f"`ep_implementation: {layout.ep_implementation}`",
            span=size_span(context, "ep_implementation", "ep_size", "target"),
            label="dispatches tokens in training",
            labels=size_labels(context, "target"),
            notes=("transformers 5.24.0 counted them right where it was tried",),
            help=("`ep_implementation: all_reduce`, with ep_size == tp_size, is what they advise",),
        )


@define("PL607", "trainer-without-pipeline", Severity.ERROR)
class TrainerWithoutPipeline(Rule):
    """Looks for pipeline stages under the Trainer of transformers.

    It calls the model as if one rank had all of it, and copies the parameters of rank 0 to every other rank, whose
    stage has others: the job ends in the first step, in a collective whose sizes differ.

    Example:

        target: trainer
        pp_size: 2

    Use instead:

        target: trainer
        tp_size: 2

    Source: `Trainer._sync_replicated_trainable_parameters`, transformers 5.24.0; tried on two ranks.
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        layout = context.layout
        if context.target != "trainer" or layout.pp_size == 1:
            return
        yield self.code.found(
            f"the Trainer trains no pipeline, and pp_size={layout.pp_size}",
            span=size_span(context, "pp_size", "target"),
            labels=size_labels(context, "target"),
            help=(f"use the ranks for `tp_size` or `fsdp_size`: tp_size={layout.pp_size * layout.tp_size}",),
        )
