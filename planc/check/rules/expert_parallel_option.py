"""PL903."""

from collections.abc import Iterator

from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Severity


@define("PL903", "enable-expert-parallel-deprecated", Severity.WARNING)
class ExpertParallelOption(Rule):
    """Looks for `enable_expert_parallel: true`.

    The field is deprecated. Without `ep_size` it means `ep_size = tp_size` with an empty TP plan, which planc's own
    runtime runs and transformers 5.24.0 refuses (PL116). Beside an `ep_size` above 1 it is no fault:
    `DistributedConfig` sets it there itself.

    Example:

        tp_size: 4
        enable_expert_parallel: true

    Use instead, with the dense modules split too, where their heads allow:

        tp_size: 4
        ep_size: 4

    or, with the experts split alone:

        tp_size: 4
        ep_size: 4
        tp_plan: {}

    Source: `DistributedConfig._resolve_parallelism`, transformers 5.24.0.
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        plan, size = context.plan, context.layout.ep_size
        option = plan.options.get("enable_expert_parallel")
        if option is None or option.value is not True:
            return
        if "ep_size" in plan.sizes and size > 1:
            return  # a `DistributedConfig` with an `ep_size` sets the field itself, and its dump has both
        if "ep_size" in plan.sizes:
            message, help_ = "`enable_expert_parallel` says nothing beside `ep_size`", "leave it out"
        else:
            empty = " and an empty `tp_plan`" if plan.tp_plan.state == "absent" else ""
            message = f"`enable_expert_parallel` is deprecated: here it means ep_size={size}{empty}"
            also = " and `tp_plan: {}`" if empty else ": the TP plan stays as it is"
            help_ = f"write `ep_size: {size}`{also}"
        yield self.code.found(message, span=option.span, label="deprecated", help=(help_,))
