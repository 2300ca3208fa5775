"""PL205."""

from collections.abc import Iterator

from planc.check.expert_sizes import expert_counts
from planc.check.places import size_span
from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Edit, Fix, Severity


@define("PL205", "no-experts", Severity.ERROR)
class NoExperts(Rule):
    """Looks for `ep_size` above 1 on a dense model.

    Expert parallelism deals out whole experts. A model without experts has nothing to deal out, and its `ep_plan` is
    empty, which transformers refuses.

    Example, on Llama 3.1:

        fsdp_size: 2
        ep_size: 2

    Use instead:

        fsdp_size: 2

    Source: `DistributedMixin._resolve_parallel_plans`, transformers 5.24.0.
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        size, file = context.layout.ep_size, context.manifest.file
        if size == 1 or expert_counts(context) or file.plans.ep:
            return
        span = size_span(context, "ep_size", "enable_expert_parallel")
        given = context.plan.sizes.get("ep_size")
        yield self.code.found(
            f"ep_size={size} on {file.class_name}, which has no experts",
            span=span,
            label="nothing to deal out",
            help=("leave `ep_size` out: a dense model is split by `tp_size` and `fsdp_size`",),
            fix=Fix("make it 1", (Edit(given.span, "1"),)) if given and not given.span.is_virtual else None,
        )
