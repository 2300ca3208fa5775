"""PL215."""

from collections.abc import Iterator

from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Severity


@define("PL215", "option-without-effect", Severity.WARNING)
class OptionWithoutEffect(Rule):
    """Looks for options of FSDP or of expert parallelism in a layout that doesn't use them.

    `fsdp_mixed_precision` and `fsdp_cpu_offload` are policies of FSDP: without `fsdp_size` or `dp_replicate_size`
    above 1 the parameters keep their dtype and stay on the device. `ep_implementation` speaks of expert groups.

    Example:

        tp_size: 8
        fsdp_mixed_precision: true

    Use instead:

        tp_size: 4
        fsdp_size: 2
        fsdp_mixed_precision: true

    Source: `DistributedMixin.maybe_distribute_model`, transformers 5.24.0.
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        layout, options = context.layout, context.plan.options
        for name in ("fsdp_mixed_precision", "fsdp_cpu_offload"):
            option = options.get(name)
            if option is not None and option.value is True and layout.dp_size == 1:
                yield self.code.found(
                    f"`{name}` has no effect: fsdp_size and dp_replicate_size are 1",
                    span=option.span,
                    help=("give `fsdp_size` above 1, or leave the option out",),
                )
        option = options.get("ep_implementation")
        if option is not None and option.value != "auto" and layout.ep_size == 1:
            yield self.code.found(
                f"`ep_implementation: {option.value}` has no effect: ep_size is 1",
                span=option.span,
                help=("give `ep_size` above 1, or leave the option out",),
            )
