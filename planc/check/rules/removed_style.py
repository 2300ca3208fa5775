"""PL902."""

from collections import defaultdict
from collections.abc import Iterator

from planc.check.masking import EXPERTS, ROUTER, entry_span, own_plan_instead, without
from planc.check.places import counted
from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Edit, Fix, Label, Severity
from planc.styles.registry import REMOVED, REMOVED_NAMES
from planc.syntax.plan import PlanRule


@define("PL902", "removed-style", Severity.ERROR)
class RemovedStyle(Rule):
    """Looks for styles that are gone.

    `ep_router` masked the routes to experts of other ranks. That is now `ep_implementation: all_reduce`, and the
    router has no rule of its own. The styles with `local` in their name kept a module from DTensor; all styles do now,
    and they are called by their plain names. `gather` summed what such modules gave. transformers refuses the old plan.

    Example:

        ep_plan:
          model.layers.*.mlp.gate: ep_router
          model.layers.*.mlp.experts: moe_tp_experts

    Use instead the model's own EP plan, by leaving `ep_plan` out, with:

        ep_implementation: all_reduce

    Source: `DistributedMixin._resolve_parallel_plans`, transformers 5.24.0.
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        removed: dict[str, list[PlanRule]] = defaultdict(list)
        for rule in context.rules():
            if rule.style.name in REMOVED:
                removed[rule.style.name].append(rule)
        for name, rules in removed.items():
            rule = rules[0]
            others = f", and {counted(len(rules), 'rule')} still name it" if len(rules) > 1 else ""
            new = REMOVED_NAMES.get(name)
            said = f"is called `{new}` in transformers now" if new else "was removed from transformers"
            yield self.code.found(
                f"the style `{name}` {said}{others}",
                span=rule.style.span,
                label="renamed" if new else "removed",
                labels=tuple(Label(other.style.span, "here, too") for other in rules[1:]),
                key=rule.key.text,
                help=(REMOVED[name],),
                fix=_fix(name, rules, context),
            )


def _fix(name: str, rules: list[PlanRule], context: CheckContext) -> Fix | None:
    if name in REMOVED_NAMES:
        return _renamed(rules)
    if name != ROUTER:
        return _of_local_tensors(rules, context)
    masked = any(rule.style.name == EXPERTS for rule in context.plan.section(rules[0].plan).rules)
    own, dropped = own_plan_instead(context), without(rules[0], context)
    return own or dropped if masked else dropped or own


def _of_local_tensors(rules: list[PlanRule], context: CheckContext) -> Fix | None:
    """Experts whose parameters have rules of their own sum what they compute; any other rule has nothing left to do."""
    edits = []
    for rule in rules:
        of = context.resolved.plan(rule.plan)
        inside = [a.target for a in of.values() if a.rule is rule and a.target in context.manifest.modules]
        experts = [name for name in inside if context.manifest.modules[name].entry.experts is not None]
        if rule.style.name == "local" and experts and len(experts) == len(inside):
            edits.append(Edit(rule.style.span, "moe_tp_experts"))
        elif (entry := entry_span(rule, context)) is not None:
            edits.append(Edit(entry, ""))
        else:
            return None
    words = dict.fromkeys("write `moe_tp_experts`" if edit.replacement else "drop the rule" for edit in edits)
    return Fix(" and ".join(words), tuple(edits))


def _renamed(rules: list[PlanRule]) -> Fix:
    """The present name of the style in all of `rules`."""
    new = REMOVED_NAMES[rules[0].style.name]
    return Fix(f"write `{new}`", tuple(Edit(rule.style.span, new) for rule in rules))
