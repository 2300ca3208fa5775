"""PL103."""

from collections.abc import Iterator

from planc.check.places import counted
from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Label, Severity
from planc.syntax.plan import PlanRule


@define("PL103", "shadowed-rule", Severity.WARNING)
class ShadowedRule(Rule):
    """Looks for rules of yours that other rules hide on every target.

    Of two rules that name the same target the later wins; a parameter's own rule beats its module's; and a rule of the
    EP plan drops every TP rule on the same module and below it.

    Example:

        tp_plan:
          model.layers.[0-31].mlp.up_proj: colwise_gather_output
          model.layers.*.mlp.up_proj: colwise

    Use instead the general rule first, the exception after it:

        tp_plan:
          model.layers.*.mlp.up_proj: colwise
          model.layers.[0-7].mlp.up_proj: colwise_gather_output
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        for rule in context.rules():
            targets = context.resolved.matches[rule]
            if not targets or not context.is_on(rule.plan):
                continue
            hider = self._hider(rule, context)
            if hider is not None and not self._is_override_of_base(rule, hider):
                yield self._shadowed(rule, hider, len(targets))

    def _hider(self, rule: PlanRule, context: CheckContext) -> PlanRule | None:
        """The rule that wins on the first target, when `rule` wins on none."""
        assignments = context.resolved.plan(rule.plan)
        names = context.resolved.matches[rule]
        winners = {assignments[name].rule for name in names if name in assignments}
        # A rule on a module may also have come through on the module's parameters.
        if rule in winners or any(assignment.rule == rule for assignment in assignments.values()):
            return None
        if rule in context.resolved.displaced:
            return context.resolved.displaced[rule]
        return next((assignments[n].rule for n in names if n in assignments), None)

    def _is_override_of_base(self, rule: PlanRule, hider: PlanRule) -> bool:
        """Overriding a rule of the file that a plan extends is what `extends` is for."""
        return rule.plan == hider.plan and rule.span.file != hider.span.file and rule.key.text == hider.key.text

    def _shadowed(self, rule: PlanRule, hider: PlanRule, count: int) -> Diagnostic:
        if hider.plan != rule.plan:
            why = f"the EP rule `{hider.key.text}` displaces it: EP rules win over TP rules on a module and below it"
        elif rule.key.text != hider.key.text:
            why = f"the later rule `{hider.key.text}` names the same modules"
        else:
            why = "a later rule has the same key"
        return self.code.found(
            f"`{rule.key.text}: {rule.style.text}` never takes effect: {why}",
            span=rule.span,
            label=f"hidden on {'all of its ' if count > 1 else ''}{counted(count, 'target')}",
            labels=(Label(hider.span, f"wins: {hider.style.text}"),),
            key=rule.key.text,
            target_count=count,
            help=("leave it out" if hider.plan != rule.plan else "put the general rule before its exceptions",),
        )
