"""A plan as transformers' own `DistributedConfig`, as far as that can say it."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from planc.diagnostics.codes import Code, define
from planc.diagnostics.diagnostic import Diagnostic, Severity
from planc.layouts.layout import Layout
from planc.model.manifest import Manifest
from planc.program.program import CarriedPlans
from planc.resolve.resolved import Assignment, ResolvedPlan
from planc.resolve.resolver import PLANS, resolve
from planc.styles.registry import create
from planc.syntax.arguments import plan_from_mapping
from planc.syntax.matching import generic_name
from planc.syntax.plan import Plan, PlanKind, PlanRule, StyleUse

# Options of a plan that are fields of transformers 5.24.0's `DistributedConfig` and change what runs.
OPTIONS = ("fsdp_cpu_offload", "fsdp_mixed_precision")
Rules = dict[PlanKind, dict[str, str]]


@define("PL605", "rule-not-carried", Severity.ERROR)
class RuleNotCarried:
    """A rule can't be said in a `DistributedConfig` of transformers.

    transformers replaces every layer number of a name by `*` and looks the result up: it can't tell layers apart. It
    always adds the model's own rules, unless the TP plan is empty, and a style has no arguments. planc writes out what
    it can (alternation, sets that cover all layers) and says what is left over; `planc.apply` runs it all.

    Example:

        tp_plan:
          model.layers.0.mlp.up_proj: replicate

    Use instead a rule for all layers, `model.layers.*.mlp.up_proj: replicate`, or run the plan by `planc.apply`.
    """

    code: ClassVar[Code]


@dataclass(frozen=True, slots=True)
class Export:
    """The fields of a `DistributedConfig`, and a finding for each rule that it can't carry."""

    fields: Mapping[str, Any]
    findings: tuple[Diagnostic, ...] = ()


def export(plan: Plan, resolved: ResolvedPlan, manifest: Manifest) -> Export:
    """What transformers must be given to do what `plan` says, proved by resolving it again as transformers does."""
    rules: Rules = {kind: {} for kind in PLANS}
    findings: dict[tuple[PlanRule, str], list[str]] = defaultdict(list)
    for kind in PLANS:
        for key, style, refused in _by_key(kind, resolved):
            if style is not None:
                rules[kind][key] = style
            for rule, reason in refused:
                findings[rule, reason].append(key)
    fields = _fields(plan, resolved, rules)
    blamed = {rule for rule, _ in findings}
    for rule, reason, target in _differences(fields, resolved, manifest):
        if rule not in blamed:
            findings[rule, reason].append(target)
    return Export(fields, tuple(_finding(rule, why, names) for (rule, why), names in findings.items()))


def carried(plan: Plan, resolved: ResolvedPlan) -> CarriedPlans:
    """The plans of `plan` as transformers keeps them on a model: one style for each name with `*` for layer numbers.

    Merged as in `DistributedMixin._resolve_parallel_plans`: the model's rules, those for names that this model doesn't
    have included, and the user's over them. A name whose layers differ stands for none of them and is left out.
    """
    given: dict[PlanKind, dict[str, str]] = {}
    merged: dict[PlanKind, dict[str, str]] = {}
    for kind in PLANS:
        given[kind] = {key: style for key, style, _ in _by_key(kind, resolved) if style is not None}
        rules = resolved.rules.get(kind, ())
        inert = (rule for rule in rules if rule.origin == "model" and not resolved.matches.get(rule))
        merged[kind] = {rule.key.text: rule.style.name for rule in inert}
        for key, winners in _winners(kind, resolved).items():
            styles = {rule.style.name for rule in winners}
            if len(styles) == 1:
                merged[kind][key] = next(iter(styles))
    options = {name: bool(plan.options[name].value) for name in OPTIONS if name in plan.options}
    return CarriedPlans(merged, {kind: rules for kind, rules in given.items() if rules}, options)


def _by_key(kind: PlanKind, resolved: ResolvedPlan) -> Iterator[tuple[str, str | None, list[tuple[PlanRule, str]]]]:
    """For each key of transformers that a user's rule reaches: its style, or the rules that can't be carried."""
    for key, winners in _winners(kind, resolved).items():
        users = [rule for rule in dict.fromkeys(winners) if rule.origin == "user"]
        styles = {_plain(rule.style, kind) for rule in winners}
        if not users:
            continue
        if None in styles:
            reason = "a style of transformers has no arguments"
            yield key, None, [(rule, reason) for rule in users if _plain(rule.style, kind) is None]
        elif len(styles) > 1:
            yield key, None, [(rule, f"transformers can't tell the layers of `{key}` apart") for rule in users]
        else:
            yield key, next(iter(styles)), []


def _winners(kind: PlanKind, resolved: ResolvedPlan) -> Mapping[str, list[PlanRule]]:
    """For each key of transformers the strongest rule of every name that it stands for."""
    strongest: dict[str, PlanRule] = {}
    for rule in resolved.rules.get(kind, ()):
        strongest.update(dict.fromkeys(resolved.matches.get(rule, ()), rule))
    groups: dict[str, list[PlanRule]] = defaultdict(list)
    for name, rule in strongest.items():
        groups[generic_name(name)].append(rule)
    return groups


def _plain(style: StyleUse, kind: PlanKind) -> str | None:
    """The style's name, if it says everything: arguments may only repeat the style's own values."""
    if style.arguments:
        without = create(StyleUse(style.name, (), style.span), kind)
        if without is None or dict(style.arguments) != {name: without.values.get(name) for name, _ in style.arguments}:
            return None
    return style.name


def _fields(plan: Plan, resolved: ResolvedPlan, rules: Rules) -> dict[str, Any]:
    layout = resolved.layout
    fields: dict[str, Any] = {name: size for name, size in _sizes(layout).items() if size > 1}
    for kind in PLANS:
        if rules[kind]:
            fields[f"{kind}_plan"] = rules[kind]
    if layout.ep_implementation != "auto":
        fields["ep_implementation"] = layout.ep_implementation
    return fields | {name: plan.options[name].value for name in OPTIONS if name in plan.options}


def _sizes(layout: Layout) -> dict[str, int]:
    names = ("pp_size", "dp_replicate_size", "fsdp_size", "tp_size", "ep_size")
    return {name: getattr(layout, name) for name in names}


def _differences(
    fields: Mapping[str, Any], resolved: ResolvedPlan, manifest: Manifest
) -> Iterator[tuple[PlanRule, str, str]]:
    """Where transformers would do something else: the rule to blame, why, and the module or parameter."""
    again, _ = plan_from_mapping(fields)
    assert again is not None  # made of keys and styles that were parsed before
    theirs = resolve(again, manifest, resolved.layout)
    for kind in PLANS:
        wanted, given = resolved.plan(kind), theirs.plan(kind)
        for target in (*wanted, *(name for name in given if name not in wanted)):
            ours, other = wanted.get(target), given.get(target)
            if _style_of(ours, kind) == _style_of(other, kind):
                continue
            if ours is None or ours.rule.origin == "model":
                assert other is not None or ours is not None
                added = other or ours
                yield added.rule, "transformers always adds the model's own rules", target  # type: ignore[union-attr]
            else:
                yield ours.rule, "transformers resolves it to something else", target


def _style_of(assignment: Assignment | None, kind: PlanKind) -> tuple[str, Any] | None:
    if assignment is None:
        return None
    style = assignment.style
    return style.name, () if _plain(style, kind) is not None else style.arguments


def _finding(rule: PlanRule, reason: str, targets: list[str]) -> Diagnostic:
    return RuleNotCarried.code.found(
        f"`{rule.key.text}: {rule.style.text}` can't be said in a `DistributedConfig`: {reason}",
        span=rule.span,
        key=rule.key.text,
        targets=tuple(targets[:1]),
        target_count=len(targets),
    )
