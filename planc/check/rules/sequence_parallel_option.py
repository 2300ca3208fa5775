"""PL213."""

from collections.abc import Iterator

from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Severity


@define("PL213", "sequence-parallel-not-wired", Severity.WARNING)
class SequenceParallelOption(Rule):
    """Looks for `enable_sequence_parallel: true`.

    The field is reserved: transformers reads it and does nothing with it. The style `sequence_parallel` is another
    thing, and works.

    Example:

        enable_sequence_parallel: true

    Use instead: leave it out.

    Source: `DistributedConfig`, transformers 5.24.0.
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        option = context.plan.options.get("enable_sequence_parallel")
        if option is not None and option.value is True:
            yield self.code.found(
                "`enable_sequence_parallel` is reserved and does nothing",
                span=option.span,
                label="not wired up in transformers 5.24",
                help=("leave it out",),
            )
