"""PL107."""

from collections.abc import Iterator

from planc.check.masking import EXPERTS, ROUTER, own_plan_instead
from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Edit, Fix, Severity
from planc.styles.registry import REMOVED, get, names
from planc.styles.style import Style
from planc.syntax.plan import PlanKind, PlanRule

PLANS: tuple[PlanKind, ...] = ("tp", "ep", "fsdp")


@define("PL107", "style-in-wrong-plan", Severity.ERROR)
class StyleInWrongPlan(Rule):
    """Looks for styles in a plan that doesn't take them.

    `free_full_weight` and `keep_full_weight` are styles of `fsdp_plan`; `ep_dispatch_experts` is one of `ep_plan`;
    `moe_tp_experts` and `mla_kv_a_proj` are styles of `tp_plan`.

    Example:

        ep_plan:
          model.layers.*.mlp.experts: moe_tp_experts

    Use instead:

        ep_plan:
          model.layers.*.mlp.experts: ep_dispatch_experts

    Source: `DistributedMixin._resolve_parallel_plans`, transformers 5.24.0.
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        for rule in context.rules():
            name = rule.style.name
            style = get(name)
            if style is None or name in REMOVED or rule.plan in _plans_of(style, rule.plan):
                continue
            targets = context.resolved.matches[rule]
            if not style.refused_elsewhere and all(name in context.manifest.parameters for name in targets):
                continue  # on a parameter it does nothing, as PL110 says
            legal = " or ".join(f"`{kind}_plan`" for kind in PLANS if kind in style.plans)
            yield self.code.found(
                f"`{name}` belongs in {legal}, not in `{rule.plan}_plan`",
                span=rule.style.span,
                label=f"a style of {legal}",
                key=rule.key.text,
                help=(self._instead(rule.plan, name),),
                fix=_fix(rule, context),
            )

    def _instead(self, plan: PlanKind, name: str) -> str:
        if plan == "ep" and name == "moe_tp_experts":
            return (
                "in an EP plan the experts get `ep_dispatch_experts` and their weights `grouped_gemm`; "
                "`ep_implementation: all_reduce` masks and sums as `moe_tp_experts` did"
            )
        return f"styles of `{plan}_plan`: {', '.join(names(plan))}"


def _fix(rule: PlanRule, context: CheckContext) -> Fix | None:
    """What masked experts become; where the router's rule is there, too, PL902 offers it."""
    others = context.plan.section(rule.plan).rules
    if rule.plan != "ep" or rule.style.name != EXPERTS or rule.origin == "model":
        return None
    dispatch = Fix("write `ep_dispatch_experts`", (Edit(rule.style.span, "ep_dispatch_experts"),))
    if any(other.style.name == ROUTER for other in others):
        return None if own_plan_instead(context) else dispatch
    return own_plan_instead(context) or dispatch


def _plans_of(style: type[Style], plan: PlanKind) -> frozenset[PlanKind]:
    # A name may stand for one style in TP and EP plans and for another in FSDP plans.
    return style.plans if get(style.name, plan) is not None else style.plans - {plan}
