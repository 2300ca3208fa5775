"""PL101."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from planc.check.nearest import or_list
from planc.check.places import counted
from planc.check.rule import CheckContext, Rule
from planc.check.suggestions import MOST_EXPLAINED, Suggestion, expand, suggest
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Edit, Fix, Label, Severity
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
        groups: dict[object, list[_Dead]] = defaultdict(list)
        count = 0
        for rule in context.rules():
            if not context.resolved.matches[rule] and not context.is_own_key(rule):
                count += 1
                found = suggest(rule, context) if count <= MOST_EXPLAINED else Suggestion()
                is_free = found.is_certain and (rule.plan, found.keys[0]) not in taken
                if is_free:
                    taken.add((rule.plan, found.keys[0]))
                # What one and the same prefix mends is one finding, and so is what nothing is like.
                alike = found.label if found.is_prefix else None if found.keys or found.label else ""
                groups[rule if alike is None else (rule.plan, alike)].append(_Dead(rule, found, is_free))
        for group in groups.values():
            yield self._dead(group, context)

    def _dead(self, group: Sequence["_Dead"], context: CheckContext) -> Diagnostic:
        first, *others = group
        edits = tuple(Edit(dead.rule.key.span, dead.found.keys[0]) for dead in group if dead.is_free)
        more = f", and so for {counted(len(edits) - 1, 'more rule')}" if len(edits) > 1 else ""
        said = f"`{first.rule.key.text}` matches" if not others else f"{len(group)} rules match"
        also = "here, too" if first.found.is_prefix else "nor this"
        first_free = next((dead.found.keys[0] for dead in group if dead.is_free), "")
        return self.code.found(
            f"{said} nothing in {context.manifest.file.class_name}",
            span=first.rule.key.span,
            label=first.found.label or "no module or parameter has this name",
            labels=tuple(Label(dead.rule.key.span, also) for dead in others[:MOST_EXPLAINED]),
            key=first.rule.key.text,
            notes=tuple(dict.fromkeys(note for dead in group for note in dead.found.notes)),
            help=(f"did you mean {or_list(first.found.keys)}?",) if first.found.keys else (),
            fix=Fix(f"write `{first_free}`{more}", edits, safe=True) if edits else None,
        )


@dataclass(frozen=True, slots=True)
class _Dead:
    """A rule that names nothing, what it may mean, and whether the first guess may be written."""

    rule: PlanRule
    found: Suggestion
    is_free: bool


def _written_out(rule: PlanRule) -> list[str]:
    """The keys that `rule` stands for: alternation is written out; a key of single layers is itself alone."""
    is_of_layers = any(isinstance(segment, Indices) for segment in rule.key.segments)
    return [rule.key.text] if is_of_layers else expand(rule.key)
