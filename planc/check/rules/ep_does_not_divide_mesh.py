"""PL203."""

from collections.abc import Iterator

from planc.check.expert_sizes import mesh_sizes
from planc.check.places import listed, size_labels, size_span
from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Severity


@define("PL203", "ep-does-not-divide-mesh", Severity.ERROR)
class EpDoesNotDivideMesh(Rule):
    """Looks for an `ep_size` that doesn't divide `fsdp_size * tp_size`.

    Expert parallelism adds no process: it regroups the ranks of `fsdp` and `tp`, so its groups must fill them.

    Example:

        tp_size: 2
        fsdp_size: 2
        ep_size: 8

    Use instead a divisor of 4, or more ranks:

        fsdp_size: 4
        ep_size: 8

    Source: `DistributedConfig._validate_mesh_config`, transformers 5.24.0.
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        layout = context.layout
        ranks = layout.fsdp_size * layout.tp_size
        if layout.ep_size == 1 or layout.ep_size % layout.tp_size or ranks % layout.ep_size == 0:
            return
        legal = [f"ep_size of {listed(mesh_sizes(layout))} is legal"]
        if layout.ep_size % ranks == 0:
            needed = layout.ep_size // layout.tp_size
            legal.append(f"or give it ranks: fsdp_size={needed} makes {layout.ep_size}")
        yield self.code.found(
            f"ep_size={layout.ep_size} must divide fsdp_size * tp_size = "
            f"{layout.fsdp_size} * {layout.tp_size} = {ranks}",
            span=size_span(context, "ep_size", "enable_expert_parallel"),
            label=f"expert groups of {layout.ep_size} don't fill {ranks} ranks",
            labels=size_labels(context, "fsdp_size", "tp_size"),
            help=("; ".join(legal),),
        )
