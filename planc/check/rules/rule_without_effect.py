"""PL110."""

from collections.abc import Iterator

from planc.check.effects import acts
from planc.check.places import counted
from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Severity
from planc.resolve.resolved import Assignment
from planc.styles.registry import STYLES
from planc.syntax.plan import PlanRule


@define("PL110", "rule-without-effect", Severity.WARNING)
class RuleWithoutEffect(Rule):
    """Looks for rules that shard no parameter and hook no forward.

    A style that only hooks a forward does nothing on a parameter; a style that only places parameters does nothing on
    a module that has none of its own: a rule doesn't reach down to the modules inside.

    Example:

        tp_plan:
          model.layers.*.self_attn.q_norm.weight: replicated_with_grad_allreduce

    Use instead:

        tp_plan:
          model.layers.*.self_attn.q_norm: replicated_with_grad_allreduce
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        for rule in context.rules():
            if rule.plan == "fsdp" or rule.style.name not in STYLES or rule.style.name == "replicate":
                continue
            assigned = context.resolved.plan(rule.plan)
            mine = [a for a in assigned.values() if a.rule == rule]
            if mine and not any(acts(assignment, context) for assignment in mine):
                yield self._found(rule, mine)

    def _found(self, rule: PlanRule, mine: list[Assignment]) -> Diagnostic:
        on_parameter = all(assignment.is_parameter for assignment in mine)
        module = rule.key.text.rpartition(".")[0]
        return self.code.found(
            f"`{rule.key.text}: {rule.style.text}` does nothing",
            span=rule.span,
            label=f"`{rule.style.name}` acts on a module's forward, and this names a parameter"
            if on_parameter
            else "the module has no parameters of its own, and a rule doesn't reach the modules inside",
            key=rule.key.text,
            targets=tuple(assignment.target for assignment in mine[:3]),
            target_count=len(mine),
            notes=(counted(len(mine), "target"),),
            help=(f"name the module: `{module}`",) if on_parameter else ("name the modules that hold parameters",),
        )
