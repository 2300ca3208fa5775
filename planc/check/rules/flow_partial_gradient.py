"""PL407."""

from collections.abc import Iterator

from planc.check.flow_findings import findings
from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Severity
from planc.flow.problems import Kind


@define("PL407", "partial-gradient", Severity.ERROR)
class PartialGradient(Rule):
    """Looks for replicated parameters of whose gradient each rank has only its own share.

    A norm of single heads between a `colwise` and a `rowwise` projection sees this rank's heads alone. The forward is
    exact; in training each rank updates its copy differently, and the copies drift apart.

    Example, on Qwen3:

        tp_plan:
          model.layers.*.self_attn.q_norm: replicate

    Use instead:

        tp_plan:
          model.layers.*.self_attn.q_norm: replicated_with_grad_allreduce
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        yield from findings(context, self.code, Kind.PARTIAL_GRADIENT)
