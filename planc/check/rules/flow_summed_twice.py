"""PL403."""

from collections.abc import Iterator

from planc.check.flow_findings import findings
from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Severity
from planc.flow.problems import Kind


@define("PL403", "summed-twice", Severity.ERROR)
class SummedTwice(Rule):
    """Looks for sums over the ranks of a value that is already complete.

    Every rank holds the same, complete value; the sum has it as many times as there are ranks. The model runs, and its
    results are off by that factor.

    Example, on Llama, whose `down_proj` sums its own output:

        tp_plan:
          model.layers.*.mlp: all_reduce

    Use instead no rule for `mlp`.
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        yield from findings(context, self.code, Kind.SUMMED_TWICE)
