"""PL208."""

from collections.abc import Iterator

from planc.check.nearest import nearest, or_list
from planc.check.places import size_span
from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Edit, Fix, Severity
from planc.styles.registry import EP_IMPLEMENTATIONS, ep_implementation_names


@define("PL208", "unknown-ep-implementation", Severity.ERROR)
class UnknownEpImplementation(Rule):
    """Looks for an `ep_implementation` that nothing is registered under.

    It says how tokens reach their experts: `auto`, `all_to_all`, `all_reduce`, `deepgemm_megamoe`, a name that
    code registers with transformers (`EPImplementationInterface.register`), which `--styles-module` imports, or one
    that an installed package brings through the entry point group `planc.ep_implementations`.

    Example:

        ep_implementation: all2all

    Use instead:

        ep_implementation: all_to_all

    Source: `EpDispatchExpertsParallel.install_forward`, transformers 5.24.0, `distributed/expert_parallel.py`.
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        name = context.layout.ep_implementation
        # Custom names are looked up only when the name is none of the built-in ones: that reads package metadata.
        if name in EP_IMPLEMENTATIONS or name in (known := ep_implementation_names()):
            return
        span = size_span(context, "ep_implementation")
        close = nearest(name, known)
        is_certain = len(close) == 1 and span is not None and not span.is_virtual
        yield self.code.found(
            f"`{name}` is no known `ep_implementation`",
            span=span,
            label=f"did you mean {or_list(close)}?" if close else "",
            help=(f"registered: {', '.join(known)}",),
            fix=Fix(f"write `{close[0]}`", (Edit(span, close[0]),)) if is_certain and span else None,
        )
