"""PL109."""

from collections import defaultdict
from collections.abc import Iterator

from planc.check.places import counted
from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Severity
from planc.resolve.resolved import Assignment
from planc.styles.types import StyleType
from planc.syntax.plan import PlanRule


@define("PL109", "style-cannot-shard", Severity.ERROR)
class StyleCannotShard(Rule):
    """Looks for styles on modules and parameters that they can't work on.

    `colwise` and `rowwise` cut a Linear: they need its `out_features` and `in_features`. A router that only looks like
    a Linear, a norm, or a container of other modules has none.

    Example, on Qwen3-MoE, whose `gate` is a `Qwen3MoeTopKRouter`:

        tp_plan:
          model.layers.*.mlp.gate: colwise

    Use instead: leave the router whole.

    Source: `ColwiseParallel.install_forward` and others, transformers 5.24.0, `distributed/tensor_parallel.py`.
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        found: dict[tuple[PlanRule, str], list[str]] = defaultdict(list)
        for rule in context.rules():
            # Of FSDP rules only those on modules are ever looked at.
            parameters = [name for name in context.resolved.matches[rule] if name in context.manifest.parameters]
            if rule.plan == "fsdp" and parameters:
                found[rule, "FSDP wraps modules, and this is a parameter"] += parameters
        plans = [context.resolved.tp, context.resolved.ep]
        if context.is_on("fsdp"):
            plans.append({a.target: a for a in context.resolved.fsdp.values() if not a.is_parameter})
        for plan in plans:
            for assignment in plan.values():
                objection = self._objection(assignment, context)
                if objection:
                    found[assignment.rule, objection].append(assignment.target)
        refused = set()
        for (rule, objection), targets in found.items():
            # A module that a style can't stand on has parameters that it can't shard: one finding.
            if rule in refused:
                continue
            refused.add(rule)
            yield self.code.found(
                f"`{rule.style.name}` can't stand on `{rule.key.text}`: {objection}",
                span=rule.span,
                label=counted(len(targets), "target"),
                key=rule.key.text,
                targets=tuple(targets[:3]),
                target_count=len(targets),
            )

    def _objection(self, assignment: Assignment, context: CheckContext) -> str | None:
        style = context.style(assignment)
        if style is None:
            return None
        if assignment.is_parameter:
            module, entry = context.manifest.parameters[assignment.target]
            if assignment.by_module and style.objection(module):
                return None  # the module itself has this finding
            return style.parameter_objection(module, entry)
        module = context.manifest.modules[assignment.target]
        followers = [context.resolved.plan(assignment.rule.plan).get(name) for name in module.parameters]
        if assignment.rule.plan == "fsdp":
            return style.objection(module)
        if style.type(module) == StyleType() and not any(a is not None and a.by_module for a in followers):
            return None  # every parameter has a rule of its own, and the style hooks nothing
        return style.model_objection(context.manifest) or style.objection(module)
