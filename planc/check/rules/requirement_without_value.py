"""PL308."""

from collections.abc import Iterator

from planc.check.nearest import nearest, or_list
from planc.check.requirements import SIZES, RequirementError, evaluate, known_names
from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Edit, Fix, Severity


@define("PL308", "requirement-without-value", Severity.ERROR)
class RequirementWithoutValue(Rule):
    """Looks for conditions under `require` that can't be judged: unknown names, fields that hold no number.

    A condition may use the mesh sizes, `world_size`, `efsdp_size`, and the fields of the model's config; of a
    composite model those of its text config too.

    Example:

        require:
          - num_kv_heads % tp_size == 0

    Use instead:

        require:
          - num_key_value_heads % tp_size == 0
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        names = known_names(context)
        for requirement in context.plan.require:
            try:
                evaluate(requirement.expression, names)
            except RequirementError as error:
                numbers = [name for name, value in names.items() if isinstance(value, int)]
                close = nearest(error.name, numbers) if error.name else []
                yield self.code.found(
                    f"`{requirement.text}` can't be judged: {error}",
                    span=error.span,
                    label=f"did you mean {or_list(close)}?" if close else "",
                    help=(f"mesh sizes are {', '.join(SIZES)}; other names are fields of the config",)
                    if error.name
                    else (),
                    fix=Fix(f"write `{close[0]}`", (Edit(error.span, close[0]),)) if len(close) == 1 else None,
                )
