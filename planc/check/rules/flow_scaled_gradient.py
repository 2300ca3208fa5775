"""PL411."""

from collections.abc import Iterator

from planc.check.flow_findings import findings
from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Severity
from planc.flow.problems import Kind


@define("PL411", "gradient-summed-twice", Severity.ERROR)
class GradientSummedTwice(Rule):
    """Looks for sums of gradients that are already complete on every rank.

    The sum has the gradient as many times as there are ranks: the forward is exact, and training takes larger steps for
    some parameters than for others.

    Example, on Llama, whose norms see the whole hidden state:

        tp_plan:
          model.layers.*.input_layernorm: replicated_with_grad_allreduce

    Use instead no rule for it.
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        yield from findings(context, self.code, Kind.SCALED_GRADIENT)
