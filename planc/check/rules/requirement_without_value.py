"""PL308."""

from collections.abc import Iterator, Mapping
from typing import Any

from planc.check.nearest import nearest, or_list
from planc.check.requirements import SIZES, known_names, numbers
from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Edit, Fix, Severity
from planc.syntax.plan import Requirement
from planc.syntax.requirements import Undecided, holds, names


@define("PL308", "requirement-without-value", Severity.ERROR)
class RequirementWithoutValue(Rule):
    """Looks for conditions under `require` that can't be judged: unknown names, fields that hold no number.

    A condition may use the mesh sizes, `world_size`, `efsdp_size`, and the fields of the model's config; of a
    composite model those of its text config too. What one side of an `and` or `or` decides needs no other side:
    `num_experts % ep_size == 0 or ep_size == 1` may be required of dense models too.

    Example:

        require:
          - num_kv_heads % tp_size == 0

    Use instead:

        require:
          - num_key_value_heads % tp_size == 0
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        known = known_names(context)
        for requirement in context.plan.require:
            verdict = holds(requirement.expression, numbers(known))
            if isinstance(verdict, Undecided):
                for name in verdict.unknown:
                    yield self._without_number(name, requirement, known)
                if verdict.fault:
                    yield self.code.found(
                        f"`{requirement.text}` can't be judged: {verdict.fault}", span=requirement.span
                    )

    def _without_number(self, name: str, requirement: Requirement, known: Mapping[str, Any]) -> Diagnostic:
        span = names(requirement.expression)[name].span
        if name in known:
            why, close = f"`{name}` is no whole number in this config: {_shown(known[name])}", []
        else:
            why = f"`{name}` is neither a mesh size nor a field of the model's config"
            close = nearest(name, list(numbers(known)))
        others = f"mesh sizes are {', '.join(SIZES)}; other names are fields of the config"
        return self.code.found(
            f"`{requirement.text}` can't be judged: {why}",
            span=span,
            label=f"did you mean {or_list(close)}?" if close else "",
            help=() if name in known else (others,),
            fix=Fix(f"write `{close[0]}`", (Edit(span, close[0]),)) if len(close) == 1 else None,
        )


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:40] + "…"
