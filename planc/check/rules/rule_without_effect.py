"""PL110."""

from collections.abc import Iterable, Iterator

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
        assigned = {kind: _by_rule(context.resolved.plan(kind).values()) for kind in {r.plan for r in context.rules()}}
        for rule in context.rules():
            if rule.plan == "fsdp" or rule.style.name not in STYLES or rule.style.name == "replicate":
                continue
            mine = assigned[rule.plan].get(rule, [])
            if mine and not any(acts(assignment, context) for assignment in mine):
                yield self._found(rule, mine, context)

    def _found(self, rule: PlanRule, mine: list[Assignment], context: CheckContext) -> Diagnostic:
        label, help_text = self._why(rule, mine, context)
        return self.code.found(
            f"`{rule.key.text}: {rule.style.text}` does nothing",
            span=rule.span,
            label=label,
            key=rule.key.text,
            targets=tuple(assignment.target for assignment in mine[:3]),
            target_count=len(mine),
            notes=(counted(len(mine), "target"),),
            help=(help_text,),
        )

    def _why(self, rule: PlanRule, mine: list[Assignment], context: CheckContext) -> tuple[str, str]:
        ties = dict(context.manifest.file.ties)
        parameters = [assignment.target for assignment in mine if assignment.is_parameter]
        if owner := next((ties[name] for name in parameters if name in ties), None):
            return f"the parameter is tied to `{owner}`, which is placed by its own rule", "leave it out"
        if len(parameters) == len(mine):
            label = f"`{rule.style.name}` acts on a module's forward, and this names a parameter"
            return label, f"name the module: `{rule.key.text.rpartition('.')[0]}`"
        label = "the module has no parameters of its own, and a rule doesn't reach the modules inside"
        return label, "name the modules that hold parameters"


def _by_rule(assignments: Iterable[Assignment]) -> dict[PlanRule, list[Assignment]]:
    """Assignments by their rule, in order; each object is hashed once, for it is deep and has thousands of targets."""
    by_object: dict[int, tuple[PlanRule, list[Assignment]]] = {}
    for assignment in assignments:
        by_object.setdefault(id(assignment.rule), (assignment.rule, []))[1].append(assignment)
    found: dict[PlanRule, list[Assignment]] = {}
    for rule, alike in by_object.values():
        found.setdefault(rule, []).extend(alike)
    return found
