"""PL604."""

from collections.abc import Iterator

from planc.check.places import size_span
from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Severity


@define("PL604", "megamoe-needs", Severity.NOTE)
class MegamoeNeeds(Rule):
    """Says what `ep_implementation: deepgemm_megamoe` needs beside the layout.

    One fused kernel of DeepGEMM exchanges the tokens and runs the experts. It needs GPUs of compute capability 10
    (SM100) and experts in FP4, and has no backward. The Trainer can't use it.

    Example:

        target: trainer
        ep_implementation: deepgemm_megamoe

    Use instead, for training:

        ep_implementation: all_to_all

    Source: `MegaMoeEP`, transformers 5.24.0, `distributed/expert_parallel.py`.
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        layout = context.layout
        if layout.ep_implementation == "deepgemm_megamoe" and layout.ep_size > 1:
            yield self.code.found(
                "`deepgemm_megamoe` runs on SM100 GPUs, with experts in FP4, at inference only",
                span=size_span(context, "ep_implementation"),
                help=("`all_to_all` and `all_reduce` train, and run anywhere",),
            )
