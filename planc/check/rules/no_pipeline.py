"""PL212."""

from collections.abc import Iterator

from planc.check.places import size_span
from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Severity


@define("PL212", "no-pipeline", Severity.ERROR)
class NoPipeline(Rule):
    """Looks for pipeline stages on a model that transformers can't cut into stages.

    transformers splits the list `layers` of the base model, and puts `embed_tokens` on the first stage, `norm` and
    `lm_head` on the last. A model that lacks one of them, or keeps its layers elsewhere (as vision-language models
    do), can't be split.

    Example, on a model whose layers are `model.language_model.layers`:

        pp_size: 2

    Use instead:

        tp_size: 2

    Source: `apply_pipeline_parallelism`, transformers 5.24.0, `distributed/pipeline_parallel.py`.
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        stages, file = context.layout.pp_size, context.manifest.file
        if stages == 1:
            return
        base = f"{file.base_model_prefix}." if file.base_model_prefix else ""
        wanted = [f"{base}layers", f"{base}embed_tokens", f"{base}norm", "lm_head"]
        missing = [name for name in wanted if name not in context.manifest.modules]
        if missing:
            yield self.code.found(
                f"pp_size={stages} on {file.class_name}, which can't be cut into pipeline stages",
                span=size_span(context, "pp_size"),
                label=f"the model has no {', '.join(f'`{name}`' for name in missing)}",
                help=(f"use the ranks for `tp_size` or `fsdp_size`: tp_size={stages * context.layout.tp_size}",),
            )
