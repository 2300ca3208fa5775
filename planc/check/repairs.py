"""Which changes of a plan may mend a fault of the dataflow: the candidates that are tried, likely ones first."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from planc.flow.analysis import judged_plan
from planc.flow.problems import Kind, Problem
from planc.styles.registry import create, get
from planc.styles.style import Style
from planc.syntax.matching import generic_name
from planc.syntax.plan import PlanRule

if TYPE_CHECKING:
    from planc.check.rule import CheckContext


@dataclass(frozen=True, slots=True)
class Change:
    """One rule of a repair: `style` for `key`. `rule` is what stands there now; None where the plan says nothing."""

    key: str
    style: str
    rule: PlanRule | None = None
    from_model: bool = False


@dataclass(frozen=True, slots=True)
class Repair:
    """Changes that belong together, and the styles that they give to modules and parameters (None: no rule)."""

    changes: tuple[Change, ...]
    styles: Mapping[str, Style | None]

    def with_other(self, other: "Repair") -> "Repair":
        """Both repairs as one."""
        return Repair((*self.changes, *other.changes), {**self.styles, **other.styles})


def repairs(context: "CheckContext", problems: Sequence[Problem]) -> Iterator[Repair]:
    """Changes that may mend some of `problems`: what the model's own plan has there, then rules that the plan lacks.

    Then come rules to take back, where whoever tries them prefers what shards more, and other styles for rules that a
    fault involves.
    """
    own = sorted(_own(context), key=lambda repair: not _is_near(repair, problems))
    yield from own
    yield from _own_together(own, problems)
    yield from _additions(context, problems)
    yield from _gathered(context, problems)
    left_whole = sorted(_left_whole(context), key=lambda repair: not _is_near(repair, problems))
    yield from left_whole
    yield from _other_styles(context, problems)
    yield from _own_together(left_whole, problems)


def _is_near(repair: Repair, problems: Sequence[Problem]) -> bool:
    return any(change.key in _names(problem) for change in repair.changes for problem in problems)


def _names(problem: Problem) -> set[str]:
    origins = (origin.target for origin in problem.origins)
    names = (problem.module, problem.parameter or "", *problem.path, *problem.whole, *origins)
    return {generic_name(shown) for name in names for shown in (name, name.removesuffix(".weight"))}


def _own(context: "CheckContext") -> Iterator[Repair]:
    """Rules of the model's own plan that this plan lacks, or has otherwise, key by key."""
    found: dict[str, Repair] = {}
    own = judged_plan(context.own, context.manifest)
    for name, assignment in own.items():
        now = context.judged.get(name)
        if now is not None and now.style.text == assignment.style.text:
            continue
        change = Change(assignment.rule.key.text, assignment.style.text, now.rule if now is not None else None, True)
        before = found.get(change.key)
        styles = {**(before.styles if before else {}), name: create(assignment.style, assignment.rule.plan)}
        found[change.key] = Repair(before.changes if before else (change,), styles)
    yield from found.values()


def _left_whole(context: "CheckContext") -> Iterator[Repair]:
    """Rules that the model's own plan doesn't have, taken back key by key."""
    found: dict[str, Repair] = {}
    own = judged_plan(context.own, context.manifest)
    for name, now in context.judged.items():
        if name in own or now.style.name == "replicate":
            continue
        change = Change(now.rule.key.text, "replicate", now.rule)
        before = found.get(change.key)
        found[change.key] = Repair((change,), {**(before.styles if before else {}), name: None})
    yield from found.values()


def _own_together(single: Sequence[Repair], problems: Sequence[Problem]) -> Iterator[Repair]:
    """For each module with a fault, all of the repairs inside as one."""
    for module in dict.fromkeys(generic_name(problem.module) for problem in problems if problem.module):
        inside = [repair for repair in single if f"{repair.changes[0].key}.".startswith(f"{module}.")]
        if len(inside) > 1:
            whole = inside[0]
            for repair in inside[1:]:
                whole = whole.with_other(repair)
            yield whole


_GATHERED = {"colwise": "colwise_gather_output", "rowwise": "rowwise_split_input"}


def _gathered(context: "CheckContext", problems: Sequence[Problem]) -> Iterator[Repair]:
    """For each module with a fault, whole values between the projections inside, whose weights stay cut."""
    for module in dict.fromkeys(generic_name(problem.module) for problem in problems if problem.module):
        changes: dict[Change, None] = {}
        styles: dict[str, Style | None] = {}
        for name, now in context.judged.items():
            if now.style.name in _GATHERED and generic_name(name).startswith(f"{module}."):
                changes[Change(now.rule.key.text, _GATHERED[now.style.name], now.rule)] = None
                styles[name] = _create(_GATHERED[now.style.name])
        if changes:
            yield Repair(tuple(changes), styles)


_CANDIDATES = ("replicated_with_grad_allreduce", "colwise_gather_output", "rowwise_split_input", "colwise", "rowwise",
               "mla_kv_a_proj", "packed_colwise", "all_reduce", "moe_tp_experts", "local_params")  # fmt: skip
# What cuts a parameter by a rule of its own, along its last dim but one, and along its last.
_CUTS = ("colwise", "rowwise")


def _additions(context: "CheckContext", problems: Sequence[Problem]) -> Iterator[Repair]:
    """A rule for what is whole where it meets a shard: for its module, or for the parameter alone.

    A parameter that is a shard must be read as one: its module then gets `local_params`.
    """
    for problem in problems:
        for name in problem.whole:
            if name in context.judged or name not in context.manifest.parameters:
                continue
            module, entry = context.manifest.parameters[name]
            if module.name not in context.judged:
                yield from _styles_for(context, module.name, ("colwise", "mla_kv_a_proj"))
            for text in _CUTS[: len(entry.shape)]:
                style = _create(text)
                if style.parameter_objection(module, entry) is None:
                    yield from _cut_alone(context, name, module.name, text, style)


def _cut_alone(context: "CheckContext", name: str, module: str, text: str, style: Style) -> Iterator[Repair]:
    alike = [other for other in context.names.get(generic_name(name), ()) if other in context.manifest.parameters]
    cut = Repair((Change(generic_name(name), text),), dict.fromkeys(alike, style))
    now = context.judged.get(module)
    if now is not None:
        yield cut
        return
    local = _create("local_params")
    modules = [context.manifest.parameters[other][0].name for other in alike]
    yield cut.with_other(Repair((Change(generic_name(module), local.name),), dict.fromkeys(modules, local)))


def _other_styles(context: "CheckContext", problems: Sequence[Problem]) -> Iterator[Repair]:
    """Another style on a rule that a fault involves, or on the owner of a parameter with a wrong gradient."""
    for problem in problems:
        names = [problem.module, *(origin.target.removesuffix(".weight") for origin in problem.origins)]
        for name in dict.fromkeys(name for name in names if name in context.manifest.modules):
            first = ("replicate",) if problem.kind is Kind.SCALED_GRADIENT else ()
            yield from _styles_for(context, name, (*first, *_CANDIDATES))


def _styles_for(context: "CheckContext", name: str, styles: Sequence[str]) -> Iterator[Repair]:
    """Each of `styles` that can stand on the module `name`, on every module of this generic name."""
    module, now = context.manifest.modules[name], context.judged.get(name)
    for text in styles:
        style = _create(text)
        if style.objection(module) is None and (now is None or now.style.name != text):
            change = Change(generic_name(name), text, now.rule if now is not None else None)
            yield Repair((change,), _on_all(context, name, style))


def _on_all(context: "CheckContext", name: str, style: Style) -> dict[str, Style | None]:
    """`style` on every module of this generic name, and on its parameters."""
    modules = [other for other in context.names.get(generic_name(name), ()) if other in context.manifest.modules]
    changes: dict[str, Style | None] = dict.fromkeys(modules, style)
    for other in modules:
        changes.update(dict.fromkeys(context.manifest.modules[other].parameters, style))
    return changes


def _create(name: str) -> Style:
    found = get(name, "tp")
    assert found is not None
    return found()
