"""PL209."""

from collections.abc import Iterator

from planc.check.places import size_labels, size_span
from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Severity


@define("PL209", "pipeline-with-fsdp", Severity.ERROR)
class PipelineWithFsdp(Rule):
    """Looks for pipeline stages together with FSDP or HSDP.

    transformers refuses the combination. A pipeline goes together with tensor parallelism alone.

    Example:

        pp_size: 2
        fsdp_size: 2

    Use instead:

        pp_size: 2
        tp_size: 2

    Source: `DistributedConfig._validate_mesh_config`, transformers 5.24.0.
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        layout = context.layout
        if layout.pp_size == 1 or layout.dp_size == 1:
            return
        name = "fsdp_size" if layout.fsdp_size > 1 else "dp_replicate_size"
        kind = "FSDP" if layout.dp_replicate_size == 1 else "HSDP"
        yield self.code.found(
            f"pp_size={layout.pp_size} together with {name}={getattr(layout, name)}: "
            f"{kind} with pipeline stages is not supported",
            span=size_span(context, "pp_size"),
            label="pipeline stages go together with tensor parallelism only",
            labels=size_labels(context, "fsdp_size", "dp_replicate_size"),
            help=(
                f"pp_size={layout.pp_size}, tp_size={layout.dp_size * layout.tp_size} or "
                f"fsdp_size={layout.dp_size * layout.pp_size}, tp_size={layout.tp_size} "
                f"use the same {layout.world_size} ranks",
            ),
        )
