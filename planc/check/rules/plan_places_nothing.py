"""PL114."""

from collections.abc import Iterator

from planc.check.places import counted, size_labels, size_span
from planc.check.rule import CheckContext, Rule
from planc.check.rules.plan_without_rules import SIZES
from planc.check.suggestions import missing_prefix
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Severity
from planc.resolve.resolver import PLANS
from planc.syntax.plan import PlanKind, PlanRule, Wildcard


@define("PL114", "plan-places-nothing", Severity.ERROR)
class PlanPlacesNothing(Rule):
    """Looks for a size above 1 whose plan has rules, and not one of them, or none of those for layers, names anything.

    The model loads, and every rank holds all of it and does the same work. It happens where a wrapper or a composite
    model puts a prefix before the names that the rules were written for (`language_model.layers.*` for `layers.*`), or
    where the model's own plan is of another model. A single dead rule of the model's own plan is no fault (PL102).

    Example, on a composite model whose decoder is its `language_model`:

        tp_size: 2
        tp_plan:
          layers.*.self_attn.q_proj: colwise

    Use instead:

        tp_size: 2
        tp_plan:
          language_model.layers.*.self_attn.q_proj: colwise
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        for kind in PLANS:
            # FSDP wraps the whole model last, whether or not its rules name anything.
            if kind != "fsdp" and context.is_on(kind) and self._is_dead(kind, context):
                yield self._found(kind, context.resolved.rules[kind], context)

    def _is_dead(self, kind: PlanKind, context: CheckContext) -> bool:
        """Whether no rule names anything, or none of those for layers where a prefix is missing.

        Not where PL101 says it of a rule of the user's.
        """
        rules, matches = context.resolved.rules[kind], context.resolved.matches
        if any(rule.origin == "user" and not context.is_own_key(rule) for rule in rules):
            return False
        of_layers = [rule for rule in rules if any(isinstance(segment, Wildcard) for segment in rule.key.segments)]
        if any(matches[rule] for rule in of_layers or rules):
            return False
        is_misplaced = any(missing_prefix(rule.key, context) is not None for rule in of_layers)
        return bool(rules) and (is_misplaced or not any(matches[rule] for rule in rules))

    def _found(self, kind: PlanKind, rules: tuple[PlanRule, ...], context: CheckContext) -> Diagnostic:
        dead = [rule for rule in rules if not context.resolved.matches[rule]]
        which = counted(len(dead), "rule") if len(dead) == len(rules) else f"{len(dead)} rules for layers"
        held = "the whole model" if len(dead) == len(rules) else "all layers"
        size = f"{kind}_size={context.layout.tp_size if kind == 'tp' else context.layout.ep_size}"
        prefix = next((found for rule in rules if (found := missing_prefix(rule.key, context))), None)
        help_ = "`planc manifest` shows the names that the model has"
        if prefix is not None:
            key = next(rule.key.text for rule in rules if missing_prefix(rule.key, context) == prefix)
            help_ = f"names of this model begin with `{prefix}.`: write `{prefix}.{key}`, and the others like it"
        return self.code.found(
            f"{size}, and none of the {which} of the `{kind}_plan` names anything in "
            f"{context.manifest.file.class_name}: every rank would hold {held}",
            span=size_span(context, *SIZES[kind]) or rules[0].key.span,
            label="nothing is sharded over it",
            labels=size_labels(context, *SIZES[kind][1:]),
            key=rules[0].key.text,
            help=(help_,),
        )
