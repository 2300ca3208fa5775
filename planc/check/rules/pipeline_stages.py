"""PL211."""

from collections.abc import Iterator

from planc.check.places import size_span
from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Severity


@define("PL211", "too-many-stages", Severity.ERROR)
class TooManyStages(Rule):
    """Looks for more pipeline stages than the model has layers.

    Each stage takes a run of consecutive layers; with more stages than layers the last ones would hold none.

    Example, on a model of 16 layers:

        pp_size: 32

    Use instead at most 16:

        pp_size: 16

    Source: `PipelineStage.layer_range_for_rank`, transformers 5.24.0, `distributed/pipeline_parallel.py`.
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        stages, layers = context.layout.pp_size, context.manifest.file.layers
        if stages == 1 or layers is None:
            return
        count = len(context.names.get(f"{layers}.*", ()))
        if stages > count:
            yield self.code.found(
                f"pp_size={stages} stages for the {count} layers of `{layers}`",
                span=size_span(context, "pp_size"),
                label=f"{stages - count} of {stages} stages would hold no layer",
                help=(f"pp_size of 1 to {count} is legal",),
            )
