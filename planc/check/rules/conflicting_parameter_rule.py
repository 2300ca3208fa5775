"""PL104."""

from collections import defaultdict
from collections.abc import Iterator

from planc.check.places import counted
from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Label, Severity
from planc.styles.registry import create
from planc.syntax.plan import PlanRule


@define("PL104", "conflicting-parameter-rule", Severity.ERROR)
class ConflictingParameterRule(Rule):
    """Looks for a parameter whose own rule places it otherwise than its module's style expects.

    A style hooks a module's forward for the placement that it gives the parameters itself. A parameter's own rule
    beats the module's, and then the two no longer fit.

    Example:

        tp_plan:
          model.layers.*.mlp.up_proj: colwise
          model.layers.*.mlp.up_proj.weight: rowwise

    Use instead one rule, on the module:

        tp_plan:
          model.layers.*.mlp.up_proj: colwise
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        hooks = {hooked.module.name: hooked for hooked in context.hooked}
        cut = {shard.name: shard for shard in context.sharded}
        found: dict[tuple[PlanRule, PlanRule], list[str]] = defaultdict(list)
        for plan in (context.resolved.tp, context.resolved.ep):
            for name, assignment in plan.items():
                if not assignment.is_parameter or assignment.by_module:
                    continue
                module, entry = context.manifest.parameters[name]
                hook = hooks.get(module.name)
                if hook is None or hook.assignment.rule.plan != assignment.rule.plan:
                    continue
                expected = hook.style.placement(entry)
                style = create(assignment.style, assignment.rule.plan)
                # Styles that place nothing leave their parameters to rules of their own.
                if expected is None or style is None or style.placement(entry) == expected:
                    continue
                if name in cut or str(expected) != "R":
                    found[assignment.rule, hook.assignment.rule].append(name)
        for (rule, hook_rule), targets in found.items():
            yield self.code.found(
                f"`{rule.key.text}: {rule.style.text}` contradicts its module's `{hook_rule.style.text}`",
                span=rule.span,
                label=f"{counted(len(targets), 'parameter')} placed otherwise than the module's forward expects",
                labels=(Label(hook_rule.span, "the module's rule"),),
                key=rule.key.text,
                targets=tuple(targets[:3]),
                target_count=len(targets),
                help=("keep the rule on the module only",),
            )
