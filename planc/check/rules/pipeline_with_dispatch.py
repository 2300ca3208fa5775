"""PL210."""

from collections.abc import Iterator

from planc.check.places import size_labels, size_span
from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Severity


@define("PL210", "pipeline-with-dispatch", Severity.ERROR)
class PipelineWithDispatch(Rule):
    """Looks for token dispatch to experts together with pipeline stages.

    transformers refuses an `ep_dispatch_experts` rule when `pp_size` is above 1.

    Example:

        pp_size: 2
        tp_size: 2
        ep_size: 2

    Use instead tensor parallelism for the experts too, by leaving `ep_size` out:

        pp_size: 2
        tp_size: 2

    Source: `DistributedConfig._validate_resolved_ep_plan`, transformers 5.24.0.
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        layout = context.layout
        dispatch = [a for a in context.resolved.ep.values() if a.style.name == "ep_dispatch_experts"]
        if layout.pp_size > 1 and dispatch:
            yield self.code.found(
                f"ep_size={layout.ep_size} dispatches tokens inside pp_size={layout.pp_size} pipeline stages, "
                "which is not supported",
                span=size_span(context, "ep_size", "enable_expert_parallel", "pp_size"),
                labels=size_labels(context, "pp_size"),
                key=dispatch[0].rule.key.text,
                targets=tuple(a.target for a in dispatch[:3]),
                target_count=len(dispatch),
                help=("leave `ep_size` out: the TP plan splits the experts too; or `pp_size: 1`",),
            )
