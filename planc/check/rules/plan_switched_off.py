"""PL111."""

from collections.abc import Iterator

from planc.check.places import counted, size_labels
from planc.check.rule import CheckContext, Rule
from planc.check.rules.plan_without_rules import SIZES
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Severity
from planc.resolve.resolver import PLANS
from planc.syntax.plan import PlanKind, PlanRule


@define("PL111", "plan-switched-off", Severity.WARNING)
class PlanSwitchedOff(Rule):
    """Looks for rules of yours in a plan that the sizes switch off.

    `tp_plan` acts only with `tp_size` above 1, `ep_plan` only with `ep_size` above 1, `fsdp_plan` only with
    `dp_replicate_size * fsdp_size` above 1. Giving a plan infers no size but one: a `tp_plan` without `tp_size` gets
    the ranks that the other sizes leave of the launcher's, whose number `--world-size` tells.

    Example:

        fsdp_size: 4
        tp_plan:
          lm_head: colwise_gather_output

    Use instead:

        fsdp_size: 2
        tp_size: 2
        tp_plan:
          lm_head: colwise_gather_output

    Source: `DistributedConfig._resolve_parallelism`, transformers 5.24.0, `distributed/configuration_utils.py`.
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        for kind in PLANS:
            rules = [rule for rule in context.rules() if rule.plan == kind]
            is_auto = context.plan.section(kind).state == "auto" and context.world_size is None
            if (rules or is_auto) and not context.is_on(kind) and not self._is_not_derived(kind, context):
                yield self._off(kind, rules, context)

    def _is_not_derived(self, kind: PlanKind, context: CheckContext) -> bool:
        """Whether PL206 says it better: the processes don't divide, so that no `tp_size` follows."""
        is_given = kind != "tp" or "tp_size" in context.plan.sizes
        return not is_given and context.world_size not in (None, context.layout.world_size)

    def _off(self, kind: PlanKind, rules: list[PlanRule], context: CheckContext) -> Diagnostic:
        names = [name for name in SIZES[kind] if name.endswith("_size")]
        what = f"{counted(len(rules), 'rule')} in `{kind}_plan`" if rules else f"`{kind}_plan: auto`"
        why = f"{' and '.join(names)} {'are' if names[1:] else 'is'} 1"
        help_ = f"give `{names[0]}` above 1 in the plan or on the command line"
        # A plan file without sizes is written for several layouts.
        severity = self.code.severity if context.plan.sizes else Severity.NOTE
        if kind == "tp" and "tp_size" not in context.plan.sizes and context.world_size is None:
            why = "`tp_size` isn't given, and neither is the number of processes from which it would follow"
            help_ = "give `tp_size`, or `--world-size`"
            severity = self.code.severity if context.plan.sizes else Severity.UNKNOWN
        return self.code.found(
            f"{what} {'have' if len(rules) > 1 else 'has'} no effect here: {why}",
            severity=severity,
            span=context.plan.section(kind).span or rules[0].key.span,
            labels=size_labels(context, *SIZES[kind]),
            help=(help_,),
        )
