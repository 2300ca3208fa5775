"""PL902."""

from collections.abc import Iterator

from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Edit, Fix, Severity
from planc.diagnostics.span import Span
from planc.styles.registry import REMOVED
from planc.syntax.plan import Plan, PlanRule


@define("PL902", "removed-style", Severity.ERROR)
class RemovedStyle(Rule):
    """Looks for styles that are gone.

    `ep_router` masked the routes to experts of other ranks. That is now `ep_implementation: all_reduce`, and the
    router has no rule of its own. transformers refuses the old plan.

    Example:

        ep_plan:
          model.layers.*.mlp.gate: ep_router
          model.layers.*.mlp.experts: moe_tp_experts

    Use instead the model's own EP plan, by leaving `ep_plan` out, with:

        ep_implementation: all_reduce

    Source: `DistributedMixin._resolve_parallel_plans`, transformers 5.24.0.
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        removed = [rule for rule in context.rules() if rule.style.name in REMOVED]
        for rule in removed:
            yield self.code.found(
                f"the style `{rule.style.name}` was removed from transformers",
                span=rule.style.span,
                label="removed",
                key=rule.key.text,
                help=(REMOVED[rule.style.name],),
                fix=_without_section(rule, context.plan),
            )


def _without_section(rule: PlanRule, plan: Plan) -> Fix | None:
    """Replace an EP plan of the old kind, router and experts, by the option that took its place."""
    section = plan.section(rule.plan)
    old = all(other.style.name in (*REMOVED, "moe_tp_experts", "grouped_gemm") for other in section.rules)
    if rule.plan != "ep" or not old or section.span is None or "ep_implementation" in plan.options:
        return None
    lines = plan.sources.get(section.span.file, "").splitlines()
    start = next((n for n in range(section.span.line, 0, -1) if lines[n - 1 : n] and "ep_plan" in lines[n - 1]), None)
    if start is None or not lines[start - 1].startswith("ep_plan") or section.rules[0].span.line == start:
        return None
    end = section.rules[-1].span
    span = Span(section.span.file, start, 1, end.end_line, end.end_column)
    return Fix("the model's own EP plan, masked", (Edit(span, "ep_implementation: all_reduce"),))
