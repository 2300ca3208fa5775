"""PL113."""

from collections import defaultdict
from collections.abc import Iterator

from planc.check.places import counted
from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Edit, Fix, Label, Severity
from planc.resolve.resolved import Assignment
from planc.syntax.plan import PlanRule


@define("PL113", "parameter-without-forward", Severity.ERROR)
class ParameterWithoutForward(Rule):
    """Looks for parameters sharded by a rule of their own in a module whose forward no rule prepares for it.

    A rule on a module shards its parameters and hooks its forward; a rule on a parameter shards it and nothing else.
    The module then computes with a shard as if it were whole, or with a DTensor and a plain tensor at once.

    Example:

        defaults: none
        tp_plan:
          model.layers.*.mlp.up_proj.weight: colwise

    Use instead:

        defaults: none
        tp_plan:
          model.layers.*.mlp.up_proj: colwise
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        runs = {(hooked.axis, hooked.module.name): hooked for hooked in context.hooked}
        found: dict[PlanRule, list[str]] = defaultdict(list)
        other: dict[PlanRule, Assignment] = {}
        for shard in context.sharded:
            # Experts of an EP plan have a rule of their own: PL216.
            if shard.assignment.by_module or shard.axis == "ep":
                continue
            hook = runs.get((shard.axis, shard.module.name))
            if hook is None or not (hook.type.runs_local or hook.type.distributed):
                found[shard.assignment.rule].append(shard.name)
                if hook is not None:
                    other[shard.assignment.rule] = hook.assignment
        for rule, targets in found.items():
            if rule.origin == "user" or rule in other:
                yield self._found(rule, targets, other.get(rule))

    def _found(self, rule: PlanRule, targets: list[str], hook: Assignment | None) -> Diagnostic:
        module, _, parameter = rule.key.text.rpartition(".")
        fix = None
        if parameter in ("weight", "bias") and rule.origin == "user":
            fix = Fix(f"name the module: `{module}`", (Edit(rule.key.span, module),))
        said = f"`{hook.style.text}` doesn't run it on shards" if hook else "no rule names it"
        return self.code.found(
            f"`{rule.key.text}` shards a parameter of `{module}`, whose forward isn't prepared for it: {said}",
            span=rule.key.span,
            label=f"{counted(len(targets), 'parameter')}",
            labels=(Label(hook.rule.span, "the module's rule"),) if hook and hook.rule.origin == "user" else (),
            key=rule.key.text,
            targets=tuple(targets[:3]),
            target_count=len(targets),
            help=("name the module, which shards its parameters and hooks its forward",)
            if fix
            else ("give the module a style that runs it on its shards: `moe_tp_experts` or `local_params`",),
            fix=fix,
        )
