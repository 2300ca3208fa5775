"""PL102."""

from collections.abc import Iterator

from planc.check.places import counted
from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Label, Severity
from planc.resolve.resolver import PLANS


@define("PL102", "conditionally-dead-rule", Severity.NOTE)
class ConditionallyDeadRule(Rule):
    """Says which rules of the model's own plan name layers that this config doesn't build.

    A model's plan serves all of its configs: Qwen3-MoE's has rules for dense MLPs, which Qwen3-30B-A3B doesn't have.
    That is no fault. A rule of yours that overrides such a rule has no effect either, but it is no typo.

    Example, on Qwen3-30B-A3B:

        tp_plan:
          model.layers.*.mlp.gate_proj: colwise_gather_output

    Use instead: nothing, or a model whose config builds these layers.
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        matches = context.resolved.matches
        for rule in context.rules():
            if not matches[rule] and context.is_own_key(rule):
                yield self.code.found(
                    f"`{rule.key.text}` names nothing that this config builds",
                    span=rule.key.span,
                    label="the model's own plan has this key for other configs",
                    key=rule.key.text,
                )
        for kind in PLANS:
            dead = [rule for rule in context.resolved.rules[kind] if rule.origin == "model" and not matches[rule]]
            if dead and context.is_on(kind):
                yield self.code.found(
                    f"{counted(len(dead), 'rule')} of the model's own `{kind}_plan` "
                    f"{'name' if len(dead) > 1 else 'names'} nothing that this config builds",
                    span=dead[0].key.span,
                    label="not in this config",
                    labels=tuple(Label(rule.key.span, "nor this") for rule in dead[1:]),
                    key=dead[0].key.text,
                )
