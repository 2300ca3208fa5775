"""PL310."""

from collections.abc import Iterator

from planc.check.places import counted, size_span
from planc.check.quantisation_methods import Standing, method_key, method_of
from planc.check.quantised import cut_weights
from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Severity


@define("PL310", "quantisation-fails", Severity.ERROR)
class QuantisationFails(Rule):
    """Looks for quantised models that can't be sharded.

    The checkpoint's `quantization_config` names a method that transformers doesn't read (NVFP4: it only makes such
    weights while it loads others, and refuses tp_size > 1), or whose weights break when they are cut: bitsandbytes
    keeps 4-bit weights as one flat row of bytes, so that a style finds no dim to shard, and the run crashes.

    Example, with `quantization_config: {quant_method: bitsandbytes, load_in_4bit: true}`:

        tp_size: 2
        tp_plan: auto

    Use instead tp_size=1, a checkpoint that isn't quantised, or one in block-wise FP8.

    Source: `quantizers/quantizer_nvfp4.py` and `quantizers/quantizer_bnb_4bit.py`, transformers 5.24.0;
    huggingface/transformers#38122.
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        quantization = context.manifest.file.quantization
        if quantization is None:
            return
        method, key = method_of(quantization), method_key(quantization)
        notes = (f"transformers 5.24.0, `{method.source}`",)
        cut = cut_weights(context)
        if method.standing is Standing.REFUSED and (cut or context.is_on("tp")):
            yield self.code.found(
                f"transformers refuses `{key}` checkpoints: {method.why}",
                span=size_span(context, "tp_size", "ep_size"),
                notes=notes,
                help=("take a checkpoint that isn't quantised",),
            )
        elif method.standing is Standing.FAILS and cut:
            names = tuple(shard.name for shard in cut)
            yield self.code.found(
                f"weights quantised by `{key}` can't be cut: {method.why}",
                span=size_span(context, *dict.fromkeys(f"{shard.assignment.rule.plan}_size" for shard in cut)),
                label=counted(len(names), "weight"),
                targets=names[:3],
                target_count=len(names),
                notes=notes,
                help=("keep every quantised module whole, or take a checkpoint that isn't quantised",),
            )
