"""PL101."""

from collections.abc import Iterator

from planc.check.nearest import or_list
from planc.check.rule import CheckContext, Rule
from planc.check.suggestions import Suggestion, expand, suggest
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Edit, Fix, Severity
from planc.syntax.plan import Indices, PlanRule


@define("PL101", "dead-rule", Severity.ERROR)
class DeadRule(Rule):
    """Looks for rules of yours whose key names no module and no parameter of the model.

    Such a rule does nothing. transformers refuses it when the model is loaded; other runtimes drop it without a word,
    and the module stays whole on every rank. Keys that the model's own plan has too are PL102.

    Example, on Qwen3-MoE:

        ep_plan:
          layers.*.mlp.experts: ep_dispatch_experts

    Use instead the full name, from the model's root:

        ep_plan:
          model.layers.*.mlp.experts: ep_dispatch_experts

    `*` is one layer number, not a glob: `model.layers.*.mlp.*` names nothing either. Write
    `model.layers.*.mlp.{gate,up}_proj`.

    Source: `DistributedMixin._resolve_parallel_plans`, transformers 5.24.0, `distributed/mixin.py`.
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        # A fix must not write a key that the section has already, or that another fix writes.
        taken = {(rule.plan, text) for rule in context.rules() for text in _written_out(rule)}
        for rule in context.rules():
            if not context.resolved.matches[rule] and not context.is_own_key(rule):
                found = suggest(rule, context)
                is_free = found.is_certain and (rule.plan, found.keys[0]) not in taken
                if is_free:
                    taken.add((rule.plan, found.keys[0]))
                yield self._dead(rule, found, is_free, context)

    def _dead(self, rule: PlanRule, found: Suggestion, is_free: bool, context: CheckContext) -> Diagnostic:
        fix = None
        if is_free:
            edit = Edit(rule.key.span, found.keys[0])
            fix = Fix(f"write `{found.keys[0]}`", (edit,), safe=True)
        return self.code.found(
            f"`{rule.key.text}` matches nothing in {context.manifest.file.class_name}",
            span=rule.key.span,
            label=found.label or "no module or parameter has this name",
            key=rule.key.text,
            notes=found.notes,
            help=(f"did you mean {or_list(found.keys)}?",) if found.keys else (),
            fix=fix,
        )


def _written_out(rule: PlanRule) -> list[str]:
    """The keys that `rule` stands for: alternation is written out; a key of single layers is itself alone."""
    is_of_layers = any(isinstance(segment, Indices) for segment in rule.key.segments)
    return [rule.key.text] if is_of_layers else expand(rule.key)
