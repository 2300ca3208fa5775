"""From a fault in the dataflow to a finding: whose rule it is, what would be legal, and which layers have it."""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from planc.diagnostics.codes import Code
from planc.diagnostics.diagnostic import Diagnostic, Edit, Fix, Label
from planc.flow.analysis import FlowAnalysis, Judgement, judged_plan
from planc.flow.problems import Kind, Problem
from planc.resolve.resolved import Assignment
from planc.styles.registry import create
from planc.styles.style import Style
from planc.syntax.matching import generic_name
from planc.syntax.plan import PlanRule

if TYPE_CHECKING:
    from planc.check.rule import CheckContext

# So many changes of the plan are tried to find which rule is at fault.
_MOST_TRIALS = 24
# By what a fault is known again under another plan.
Mark = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Culprit:
    """The key whose change mends a fault: `rule` where the plan has one, `style` what mends it.

    `cause` is a rule of the user's that brought the fault about, where the repair is better made elsewhere.
    """

    key: str
    rule: PlanRule | None
    style: str
    from_model: bool
    cause: PlanRule | None = None


@dataclass(frozen=True, slots=True)
class Fault:
    """A problem to tell: `targets` are all names that have it, `consequences` the problems that vanish with it."""

    problem: Problem
    targets: tuple[str, ...]
    culprit: Culprit | None
    consequences: tuple[Problem, ...] = ()


def findings(context: "CheckContext", code: Code, *kinds: Kind) -> Iterator[Diagnostic]:
    """One finding for every fault of these kinds; those that one change mends are one."""
    for fault in context.faults:
        if fault.problem.kind in kinds and not _is_said(context, fault):
            yield _describe(context, code, fault)


def in_place_changes(context: "CheckContext") -> Iterator[tuple[str, Fault, PlanRule]]:
    """Every in-place change of what a style hands on: what happens where, in which layers, and the style's rule."""
    groups: dict[Any, list[tuple[Problem, Judgement]]] = {}
    for problem, judgement in context.flow.changed:
        makers = tuple(generic_name(origin.target) for origin in problem.origins)
        groups.setdefault((_kind(problem), makers), []).append((problem, judgement))
    for group in groups.values():
        fault = _fault(group, {})
        rule = context.judged[fault.problem.origins[0].target].rule
        yield f"{_subject(fault.problem)}: {fault.problem.detail}", fault, rule


def _is_said(context: "CheckContext", fault: Fault) -> bool:
    """Whether another rule of the checker has said it in the words of heads (PL301, PL302) or packed parts (PL303)."""
    from planc.check.head_cuts import head_cuts
    from planc.check.packed_cuts import packed_cuts

    if fault.problem.kind is Kind.HEAD_CUT:
        said = {target for cut in head_cuts(context) for target in cut.targets}
    elif fault.problem.kind is Kind.PACKED_CUT:
        said = {target for cut in packed_cuts(context) if cut.parts != len(cut.packing.parts) for target in cut.targets}
    else:
        return False
    made = {origin.target for origin in fault.problem.origins}
    return any(target in said or target.rpartition(".")[0] in said for target in made)


def faults(context: "CheckContext") -> list[Fault]:
    """The faults of the dataflow, those with one cause or of layers alike drawn together."""
    causes = culprits(context)
    groups: dict[Any, list[tuple[Problem, Judgement]]] = {}
    for problem, judgement in context.flow.problems:
        culprit = causes.get(_mark(problem))
        names = tuple(map(generic_name, (problem.module, problem.parameter or "")))
        key = culprit.key if culprit is not None else (problem.kind, problem.operation, *names)
        groups.setdefault(key, []).append((problem, judgement))
    return [_fault(group, causes) for group in groups.values()]


def _fault(group: Sequence[tuple[Problem, Judgement]], causes: Mapping[tuple[Any, ...], Culprit]) -> Fault:
    first = group[0][0]
    same = [(problem, judgement) for problem, judgement in group if _kind(problem) == _kind(first)]
    subjects = [(problem.parameter or problem.module, judgement) for problem, judgement in same]
    targets = dict.fromkeys(name for subject, judgement in subjects if subject for name in judgement.alike(subject))
    others = {_kind(problem): problem for problem, _ in group if _kind(problem) != _kind(first)}
    return Fault(first, tuple(targets), causes.get(_mark(first)), tuple(others.values()))


def _kind(problem: Problem) -> tuple[Any, ...]:
    return problem.kind, generic_name(problem.module), problem.operation, generic_name(problem.parameter or "")


def _describe(context: "CheckContext", code: Code, fault: Fault) -> Diagnostic:
    problem, culprit = fault.problem, fault.culprit
    involved = list(_involved(context, problem))
    rule = (culprit.cause or culprit.rule if culprit is not None else None) or next(iter(_by_user(involved)), None)
    subject = problem.parameter or problem.module
    others = dict.fromkeys(assignment.rule for assignment in involved if assignment.rule is not rule)
    labels = [Label(o.span, f"`{o.style.text}` from here") for o in others if not o.span.is_virtual]
    key = culprit.key if culprit is not None else rule.key.text if rule is not None else generic_name(subject)
    return code.found(
        f"{_subject(problem)}: {problem.detail}",
        span=rule.span if rule is not None else context.plan.tp_plan.span,
        label=f"`{rule.style.text}` from here" if rule is not None else f"no rule for `{key}` here",
        labels=tuple(labels[:4]),
        key=key,
        targets=fault.targets[:3],
        target_count=len(fault.targets),
        notes=tuple(_notes(fault)),
        help=tuple(_help(problem, culprit)),
        fix=_fix(culprit),
    )


def _subject(problem: Problem) -> str:
    """What a fault is about: a parameter, or a module with the way to it."""
    if problem.parameter is not None:
        return f"gradient of `{_short(problem.parameter)}`"
    if not problem.module:
        return "the model's output"
    source = next((name for name in problem.path if name and name != problem.module), None)
    where = f"`{_short(problem.module)}`"
    return where if source is None else f"`{_short(source)}` into {where}"


def _short(name: str) -> str:
    """The last two names of a module, layer numbers as `*`: enough to know it by."""
    parts = generic_name(name).split(".")
    return ".".join(parts[-2:])


def _notes(fault: Fault) -> Iterator[str]:
    problem = fault.problem
    path = [name for name in problem.path if name]
    if len(path) > 1:
        yield "from " + " to ".join(f"`{_short(name)}`" for name in path)
    made = [f"`{generic_name(origin.target)}` ({origin.style})" for origin in problem.origins]
    if made:
        yield "the shard comes from " + " and ".join(made)
    for other in fault.consequences[:3]:
        yield f"with it goes: {_subject(other)}: {other.detail}"
    if len(fault.consequences) > 3:
        yield f"and {len(fault.consequences) - 3} more"


def _help(problem: Problem, culprit: Culprit | None) -> Iterator[str]:
    if culprit is not None:
        whose = "as in the model's own plan" if culprit.from_model else "then it fits"
        yield f"`{culprit.key}: {culprit.style}`, {whose}"
    advice = _ADVICE.get(problem.kind)
    if advice is not None:
        yield advice


_ADVICE: Mapping[Kind, str] = {
    Kind.NEEDS_WHOLE: "gather what comes in (`colwise_gather_output`), or shard the weight by its inputs (`rowwise`)",
    Kind.NEEDS_SHARD: "shard the producer (`colwise`), or let it take its part of the whole (`rowwise_split_input`)",
    Kind.UNREDUCED: "sum it first: `rowwise` on a projection, `moe_tp_experts` on experts, `all_reduce` elsewhere",
    Kind.SUMMED_TWICE: "leave the sum out, or don't complete the value before",
    Kind.PACKED_CUT: "`packed_colwise` cuts every packed part",
    Kind.REDUCED_OVER_SHARD: "gather before: `colwise_gather_output` on the projection, `rowwise_split_input` after",
    Kind.PARTIAL_GRADIENT: "`replicated_with_grad_allreduce` sums the gradient of a replicated parameter",
    Kind.MIXED_TENSORS: "`local_params` runs a module on its own shards",
}


def _fix(culprit: Culprit | None) -> Fix | None:
    if culprit is None or culprit.rule is None or culprit.rule.origin != "user":
        return None
    return Fix(f"write `{culprit.style}`", (Edit(culprit.rule.style.span, culprit.style),), safe=False)


def _involved(context: "CheckContext", problem: Problem) -> Iterator[Assignment]:
    """The assignments behind a fault: where it shows, where its types come from, and the way between."""
    names = [problem.module, *(origin.target for origin in problem.origins), *problem.path]
    if problem.parameter is not None:
        names = [problem.parameter, *names]
    for name in dict.fromkeys(names):
        assignment = context.judged.get(name)
        if assignment is not None:
            yield assignment


def _by_user(assignments: Sequence[Assignment]) -> list[PlanRule]:
    rules = dict.fromkeys(a.rule for a in assignments)
    return sorted(rules, key=lambda rule: rule.origin != "user")


def culprits(context: "CheckContext") -> Mapping[Mark, Culprit]:
    """For each fault, the one key whose change mends it, by trying: first what the model's own plan says there."""
    analysis = context.flow
    open_problems = {_mark(problem): problem for problem, _ in analysis.problems}
    found: dict[Mark, Culprit] = {}
    if not open_problems:
        return found
    # Behind a fault another one may hide: a repair may bring out what is wrong with the model's own plan.
    released = _own_analysis(context)
    own = {_mark(problem) for problem, _ in released.problems}
    known = own | open_problems.keys()
    lost = max(_lost(analysis), _lost(released))
    second_best: list[tuple[Culprit, set[Mark]]] = []
    for key, style, rule, from_model, changes in islice(_repairs(context, list(open_problems.values())), _MOST_TRIALS):
        tried = analysis.with_styles(changes)
        left = {_mark(problem) for problem, _ in tried.problems}
        if len(left - own) > len(known - own) or _lost(tried) > lost:
            continue
        culprit = Culprit(key, rule, style, from_model)
        if not left <= known:
            second_best.append((culprit, left))
            continue
        _settle(open_problems, left, culprit, found)
        if not open_problems:
            break
    for mark, culprit in found.items():
        causes = [other.rule for other, left in second_best if mark not in left and _is_users(other.rule)]
        if causes and not _is_users(culprit.rule):
            found[mark] = replace(culprit, cause=causes[0])
    # Better than nothing: one fault for another, that may have hidden behind it.
    for culprit, left in second_best:
        _settle(open_problems, left, culprit, found)
    return found


def _is_users(rule: PlanRule | None) -> bool:
    return rule is not None and rule.origin == "user"


def _settle(
    open_problems: dict[Mark, Problem],
    left: Set[Mark],
    culprit: Culprit,
    found: dict[Mark, Culprit],
) -> None:
    """Every open problem that isn't left is this culprit's."""
    for mark in [mark for mark in open_problems if mark not in left]:
        del open_problems[mark]
        found[mark] = culprit


def _lost(analysis: FlowAnalysis) -> int:
    """How much could not be followed."""
    return sum(len(judgement.unfollowed) for judgement in analysis.judgements)


def _own_analysis(context: "CheckContext") -> FlowAnalysis:
    from planc.flow.analysis import analyse

    return analyse(context.manifest, context.layout, context.own)


def _mark(problem: Problem) -> Mark:
    return (problem.kind, problem.module, problem.operation, problem.parameter)


Repair = tuple[str, str, PlanRule | None, bool, dict[str, Style | None]]


def _repairs(context: "CheckContext", problems: Sequence[Problem]) -> Iterator[Repair]:
    """Changes of one key each, likely ones first: back to the model's own style there."""
    yield from sorted(_own_repairs(context), key=lambda repair: not _is_near(repair[0], problems))
    yield from _other_repairs(context, problems)


def _is_near(key: str, problems: Sequence[Problem]) -> bool:
    for problem in problems:
        names = [problem.module, problem.parameter or "", *problem.path, *(o.target for o in problem.origins)]
        if any(generic_name(name) in (key, f"{key}.weight") for name in names):
            return True
    return False


def _own_repairs(context: "CheckContext") -> Iterator[Repair]:
    changes: dict[str, dict[str, Style | None]] = {}
    rules: dict[str, PlanRule | None] = {}
    styles: dict[str, str] = {}
    from_model: dict[str, bool] = {}
    own_plan = judged_plan(context.own, context.manifest)
    for name in dict.fromkeys([*own_plan, *context.judged]):
        own, now = own_plan.get(name), context.judged.get(name)
        if own is not None and now is not None and own.style.text == now.style.text:
            continue
        given = own or now
        assert given is not None
        key = (now or given).rule.key.text if own is None else own.rule.key.text
        changes.setdefault(key, {})[name] = create(own.style, own.rule.plan) if own is not None else None
        rules.setdefault(key, now.rule if now is not None else None)
        styles.setdefault(key, own.style.text if own is not None else "replicate")
        from_model.setdefault(key, own is not None)
    for key, change in changes.items():
        yield key, styles[key], rules[key], from_model[key], change


_CANDIDATES = ("replicated_with_grad_allreduce", "colwise_gather_output", "rowwise_split_input", "colwise", "rowwise",
               "packed_colwise", "all_reduce", "moe_tp_experts", "local_params", "replicate")  # fmt: skip


def _candidates(problem: Problem) -> Sequence[str]:
    return ("replicate", *_CANDIDATES) if problem.kind is Kind.SCALED_GRADIENT else _CANDIDATES


def _other_repairs(context: "CheckContext", problems: Sequence[Problem]) -> Iterator[Repair]:
    """Another style on a rule that a fault involves, or on the owner of a parameter with a wrong gradient."""
    for problem in problems:
        names = [problem.module, *(origin.target.removesuffix(".weight") for origin in problem.origins)]
        for name in dict.fromkeys(name for name in names if name in context.manifest.modules):
            module = context.manifest.modules[name]
            now = context.judged.get(name)
            for text in _candidates(problem):
                style = _create(text)
                if style.objection(module) is not None or (now is not None and now.style.name == text):
                    continue
                yield generic_name(name), text, now.rule if now else None, False, _changed(context, name, style)


def _changed(context: "CheckContext", name: str, style: Style) -> dict[str, Style | None]:
    """`style` on every module of this generic name, and on its parameters."""
    modules = [other for other in context.names.get(generic_name(name), ()) if other in context.manifest.modules]
    changes: dict[str, Style | None] = dict.fromkeys(modules, style)
    for other in modules:
        changes.update(dict.fromkeys(context.manifest.modules[other].parameters, style))
    return changes


def _create(name: str) -> Style:
    from planc.styles.registry import get

    found = get(name, "tp")
    assert found is not None
    return found()
