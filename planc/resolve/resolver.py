"""From a plan and a model to what every module and parameter gets.

Follows transformers 5.24.0: `DistributedMixin._resolve_parallel_plans` and `_expand_parallel_plan` in
`transformers/distributed/mixin.py`, `_get_parameter_plan` in `parallel_utils.py`. Beyond it: index sets, single
layers and alternation, for which later rules win over earlier ones on the same target.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from planc.layouts.layout import Layout
from planc.model.manifest import Manifest, Module
from planc.resolve.fsdp import fsdp_rules
from planc.resolve.index import NameIndex
from planc.resolve.layout import effective_tp_section
from planc.resolve.model_rules import model_rules, source_name, source_text
from planc.resolve.resolved import Assignment, ResolvedPlan
from planc.syntax.plan import Plan, PlanKind, PlanRule, PlanSection

PLANS: tuple[PlanKind, ...] = ("tp", "ep", "fsdp")
# Which rules name a concrete module or parameter, weakest first.
Claims = Mapping[str, list[PlanRule]]


def resolve(plan: Plan, manifest: Manifest, layout: Layout) -> ResolvedPlan:
    """Resolve `plan` against `manifest` at `layout`.

    Never raises: rules that name nothing have no matches, unknown styles are carried along; `check` reports both.
    """
    index = NameIndex(manifest)
    rules = {kind: _merged(plan, manifest, kind) for kind in PLANS}
    sources = {source_name(manifest, kind): source_text(model_rules(manifest, kind)) for kind in PLANS}
    ep = _claims(rules["ep"], index) if layout.ep_size > 1 else {}
    tp = _claims(rules["tp"], index) if layout.tp_size > 1 else {}
    tp, displaced = _without_experts(tp, ep)
    fsdp: Claims = {}
    if layout.dp_size > 1:
        adapted, more_sources = fsdp_rules(rules["fsdp"], manifest, index)
        sources |= more_sources
        fsdp = _claims(adapted, index)
    return ResolvedPlan(
        layout=layout,
        tp=_assign(tp, manifest),
        ep=_assign(ep, manifest),
        fsdp=_innermost_first(_assign_modules(fsdp, manifest)),
        rules=rules,
        matches={rule: index.names(rule.key) for kind in PLANS for rule in rules[kind]},
        displaced=displaced,
        sources=sources,
    )


def _merged(plan: Plan, manifest: Manifest, kind: PlanKind) -> tuple[PlanRule, ...]:
    """The model's rules and the user's, weakest first: a user's rule beats the model's rule of the same key."""
    section: PlanSection = effective_tp_section(plan) if kind == "tp" else plan.section(kind)
    if kind == "tp" and section.state == "rules" and not section.rules:
        return ()
    own = model_rules(manifest, kind) if plan.defaults == "model" else ()
    return (*own, *section.rules)


def _claims(rules: tuple[PlanRule, ...], index: NameIndex) -> Claims:
    claims: dict[str, list[PlanRule]] = defaultdict(list)
    for rule in rules:
        for name in index.names(rule.key):
            claims[name].append(rule)
    return claims


def _without_experts(tp: Claims, ep: Claims) -> tuple[Claims, dict[PlanRule, PlanRule]]:
    """Drop what TP rules say of names that an EP rule names, and of everything below them."""
    if not ep:
        return tp, {}
    kept: dict[str, list[PlanRule]] = {}
    displaced: dict[PlanRule, PlanRule] = {}
    for name, rules in tp.items():
        owner = next((above for above in _self_and_ancestors(name) if above in ep), None)
        if owner is None:
            kept[name] = rules
        else:
            displaced.update(dict.fromkeys(rules, ep[owner][-1]))
    return kept, displaced


def _self_and_ancestors(name: str) -> Iterator[str]:
    while name:
        yield name
        name = name.rpartition(".")[0]


def _assign(claims: Claims, manifest: Manifest) -> dict[str, Assignment]:
    """A parameter takes its own rule, else its module's; a module's parameters come before the module."""
    assignments: dict[str, Assignment] = {}
    if not claims:
        return assignments
    for module in manifest.modules.values():
        for assignment in _assign_module(module, claims):
            assignments[assignment.target] = assignment
    return assignments


def _assign_module(module: Module, claims: Claims) -> Iterator[Assignment]:
    by_module = claims.get(module.name, [])
    for name in module.parameters:
        by_name = claims.get(name, [])
        if by_name:
            yield Assignment(name, True, by_name[-1], hides=(*by_module, *by_name[:-1]))
        elif by_module:
            yield Assignment(name, True, by_module[-1], by_module=True, hides=tuple(by_module[:-1]))
    if by_module:
        yield Assignment(module.name, False, by_module[-1], hides=tuple(by_module[:-1]))


def _assign_modules(claims: Claims, manifest: Manifest) -> dict[str, Assignment]:
    """FSDP rules act on modules as a whole; one that names a parameter is kept for `check` to refuse."""
    assignments: dict[str, Assignment] = {}
    for module in manifest.modules.values() if claims else ():
        names = [module.name] if module.name in claims else [name for name in module.parameters if name in claims]
        for name in names:
            rules = claims[name]
            assignments[name] = Assignment(name, name != module.name, rules[-1], hides=tuple(rules[:-1]))
    return assignments


def _innermost_first(assignments: dict[str, Assignment]) -> dict[str, Assignment]:
    """FSDP2 must shard a module before the one that contains it."""
    return dict(sorted(assignments.items(), key=lambda item: item[0].count("."), reverse=True))
