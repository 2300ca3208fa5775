"""PL606."""

from collections.abc import Iterator

from planc.check.places import counted, size_span
from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Severity
from planc.styles.replicated import ReplicatedWithGradAllReduce


@define("PL606", "gradient-summed-again", Severity.NOTE)
class GradientSummedAgain(Rule):
    """Says which gradients transformers' own runtime gets wrong under gradient accumulation.

    For `replicated_with_grad_allreduce` it sums the accumulated gradient over the tp axis after each backward pass, so
    that from the second pass on the sum of the passes before is summed again: n passes over tp_size ranks count the
    first one tp_size^(n-1) times. With one backward pass a step nothing is wrong. It also sums in the gradient's own
    dtype, in bfloat16 with bfloat16 parameters, where FSDP reduces in float32. planc's own runtime sums what each pass
    adds, in float32.

    Example, on Qwen3-30B-A3B, whose own plan has the style on `q_norm` and `k_norm`:

        target: trainer
        tp_size: 2

    Use instead: the same with `gradient_accumulation_steps=1`, or run the plan by `planc.apply`.

    Source: `ReplicatedWithGradAllReduce`, transformers 5.24.0, `distributed/tensor_parallel.py`
    (`register_post_accumulate_grad_hook`).
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        if context.target != "trainer" or not context.is_on("tp"):
            return
        name = ReplicatedWithGradAllReduce.name
        targets = [a.target for a in context.resolved.tp.values() if a.style.name == name and not a.is_parameter]
        if targets:
            low = _low_precision(targets, context)
            also = f", and sums them in {low} where FSDP reduces in float32" if low else ""
            yield self.code.found(
                "with gradient accumulation transformers sums the gradients of "
                f"{counted(len(targets), 'module')} again in each backward pass{also}",
                span=size_span(context, "target") or size_span(context, "tp_size"),
                targets=tuple(targets[:3]),
                target_count=len(targets),
                help=("keep `gradient_accumulation_steps=1`, or run the plan by `planc.apply`",),
            )


def _low_precision(targets: list[str], context: CheckContext) -> str | None:
    """The dtype of less than 32 bits that a parameter of these modules, and so its gradient, has."""
    modules = set(targets)
    dtypes = {entry.dtype for module, entry in context.manifest.parameters.values() if module.name in modules}
    return next((dtype for dtype in ("bfloat16", "float16") if dtype in dtypes), None)
