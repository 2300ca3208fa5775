"""PL201."""

from collections.abc import Iterator

from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Severity


@define("PL201", "size-below-one", Severity.ERROR)
class SizeBelowOne(Rule):
    """Looks for mesh sizes of 0 or less.

    A mesh axis has at least one rank. To switch an axis off, leave its size out or make it 1.

    Example:

        tp_size: 0

    Use instead:

        tp_size: 1

    Source: `DistributedConfig._resolve_parallelism`, transformers 5.24.0.
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        for name, size in context.plan.sizes.items():
            if size.value < 1:
                yield self.code.found(
                    f"`{name}` is {size.value}: a mesh axis has at least 1 rank",
                    span=size.span,
                    label="at least 1",
                    help=("leave it out, or write 1, to switch the axis off",),
                )
