"""PL202."""

from collections.abc import Iterator

from planc.check.expert_sizes import mesh_sizes
from planc.check.places import listed, size_labels, size_span
from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Severity


@define("PL202", "ep-not-multiple-of-tp", Severity.ERROR)
class EpNotMultipleOfTp(Rule):
    """Looks for an `ep_size` that is no multiple of `tp_size`.

    An expert group consists of whole TP groups: the ranks of a TP group hold the same tokens, and each of them
    dispatches its share. A group that cuts a TP group in two would lose tokens.

    Example:

        tp_size: 4
        fsdp_size: 2
        ep_size: 2

    Use instead a multiple of `tp_size` that divides `fsdp_size * tp_size`:

        ep_size: 4

    Source: `DistributedConfig._validate_mesh_config`, transformers 5.24.0.
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        layout = context.layout
        if layout.ep_size > 1 and layout.ep_size % layout.tp_size:
            yield self.code.found(
                f"ep_size={layout.ep_size} must be a multiple of tp_size={layout.tp_size}",
                span=size_span(context, "ep_size", "enable_expert_parallel"),
                label=f"{layout.ep_size} ranks can't be made of whole TP groups of {layout.tp_size}",
                labels=size_labels(context, "tp_size"),
                help=(f"ep_size legal on this mesh: {listed(mesh_sizes(layout))}",),
            )
