"""PL311."""

from collections.abc import Iterator

from planc.check.places import counted, size_span
from planc.check.quantisation_methods import Standing, method_key, method_of
from planc.check.quantised import cut_weights
from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Severity


@define("PL311", "quantisation-unknown", Severity.UNKNOWN)
class QuantisationUnknown(Rule):
    """Says where a plan shards quantised weights, and nobody knows whether they stay right.

    A quantised weight is several tensors: packed integers, scales, zero points. A rank must get parts of them that
    belong together. Of most methods transformers says nothing on that, and nobody tried; the verdict is unknown, never
    fine. What PL305 finds, shards that end inside a group, is wrong all the same.

    Example, with `quantization_config: {quant_method: gptq, bits: 4, group_size: 128}`:

        tp_size: 2
        tp_plan: auto

    Use instead a method that is known to shard right (block-wise FP8; MXFP4 for whole experts), a checkpoint that isn't
    quantised, or a comparison of the sharded model's results with those of one process.

    Source: `HfQuantizer.update_parallel_plan`, `quantizers/base.py`, transformers 5.24.0.
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        quantization = context.manifest.file.quantization
        if quantization is None:
            return
        method, key = method_of(quantization), method_key(quantization)
        cut = cut_weights(context)
        if method.standing is Standing.EXPERTS:
            cut = [shard for shard in cut if shard.dim > 0]
        elif method.standing is not Standing.UNTRIED:
            return
        if not cut:
            return
        names = tuple(shard.name for shard in cut)
        yield self.code.found(
            f"whether weights quantised by `{key}` stay right when they are cut isn't known: {method.why}",
            span=size_span(context, *dict.fromkeys(f"{shard.assignment.rule.plan}_size" for shard in cut)),
            label=counted(len(names), "weight"),
            targets=names[:3],
            target_count=len(names),
            notes=(f"transformers 5.24.0, `{method.source}`",),
            help=("compare a short run with one process, or take a checkpoint that isn't quantised",),
        )
