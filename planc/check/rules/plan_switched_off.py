"""PL111."""

from collections.abc import Iterator

from planc.check.places import counted, size_labels
from planc.check.rule import CheckContext, Rule
from planc.check.rules.plan_without_rules import SIZES
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Severity
from planc.resolve.resolver import PLANS


@define("PL111", "plan-switched-off", Severity.WARNING)
class PlanSwitchedOff(Rule):
    """Looks for rules of yours in a plan that the sizes switch off.

    `tp_plan` acts only with `tp_size` above 1, `ep_plan` only with `ep_size` above 1, `fsdp_plan` only with
    `dp_replicate_size * fsdp_size` above 1. Giving a plan infers no size.

    Example:

        fsdp_size: 4
        tp_plan:
          lm_head: colwise_gather_output

    Use instead:

        fsdp_size: 2
        tp_size: 2
        tp_plan:
          lm_head: colwise_gather_output
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        for kind in PLANS:
            rules = [rule for rule in context.rules() if rule.plan == kind]
            if rules and not context.is_on(kind):
                sizes = " and ".join(name for name in SIZES[kind] if name.endswith("_size"))
                alone = context.layout.world_size == 1
                yield self.code.found(
                    f"{counted(len(rules), 'rule')} in `{kind}_plan` {'have' if len(rules) > 1 else 'has'} no effect: "
                    f"{sizes} {'are' if ' and ' in sizes else 'is'} 1",
                    # A plan file without sizes is written for several layouts.
                    severity=Severity.NOTE if alone and not context.plan.sizes else self.code.severity,
                    span=context.plan.section(kind).span or rules[0].key.span,
                    labels=size_labels(context, *SIZES[kind]),
                    help=(f"give `{SIZES[kind][0]}` above 1 in the plan or on the command line",),
                )
