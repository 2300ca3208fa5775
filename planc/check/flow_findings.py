"""From a fault in the dataflow to a finding: whose rule it is, what would be legal, and which layers have it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from planc.check.culprits import Culprit, culprits, mark_of
from planc.check.fixes import insertion
from planc.check.repairs import Change
from planc.diagnostics.codes import Code
from planc.diagnostics.diagnostic import Diagnostic, Edit, Fix, Label
from planc.flow.analysis import Judgement
from planc.flow.problems import Kind, Problem
from planc.resolve.resolved import Assignment
from planc.syntax.matching import generic_name
from planc.syntax.plan import PlanRule

if TYPE_CHECKING:
    from planc.check.rule import CheckContext


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
    causes = culprits(context) if context.searches else {}
    groups: dict[Any, list[tuple[Problem, Judgement]]] = {}
    for problem, judgement in context.flow.problems:
        culprit = causes.get(mark_of(problem))
        names = tuple(map(generic_name, (problem.module, problem.parameter or "")))
        key = culprit.changes if culprit is not None else (problem.kind, problem.operation, *names)
        groups.setdefault(key, []).append((problem, judgement))
    return [_fault(group, causes) for group in groups.values()]


def _fault(group: Sequence[tuple[Problem, Judgement]], causes: Mapping[tuple[Any, ...], Culprit]) -> Fault:
    first = group[0][0]
    same = [(problem, judgement) for problem, judgement in group if _kind(problem) == _kind(first)]
    subjects = [(problem.parameter or problem.module, judgement) for problem, judgement in same]
    targets = dict.fromkeys(name for subject, judgement in subjects if subject for name in judgement.alike(subject))
    others = {_kind(problem): problem for problem, _ in group if _kind(problem) != _kind(first)}
    return Fault(first, tuple(targets), causes.get(mark_of(first)), tuple(others.values()))


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
        f"{_subject(problem)}: {problem.detail}{_whole(problem)}",
        span=rule.span if rule is not None else context.plan.tp_plan.span,
        label=f"`{rule.style.text}` from here" if rule is not None else f"no rule for `{key}` here",
        labels=tuple(labels[:4]),
        key=key,
        targets=fault.targets[:3],
        target_count=len(fault.targets),
        notes=tuple(_notes(fault)),
        help=tuple(_help(problem, culprit)),
        fix=_fix(context, culprit, rule or _rule_inside(context, problem)),
    )


def _rule_inside(context: "CheckContext", problem: Problem) -> PlanRule | None:
    """The first rule of the user's for what the module with a fault holds: a rule that is missing goes beside it."""
    inside = (a.rule for name, a in context.judged.items() if name.startswith(f"{problem.module}."))
    rules = {rule for rule in inside if rule.origin == "user" and not rule.span.is_virtual}
    return min(rules, key=lambda rule: (rule.span.line, rule.span.column), default=None)


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


def _whole(problem: Problem) -> str:
    """What is whole where it meets a shard, where it isn't what the fault is told of anyway."""
    names = [name.removesuffix(".weight") for name in problem.whole[:1]]
    return f"; `{_short(names[0])}` is whole" if names else ""


def _help(problem: Problem, culprit: Culprit | None) -> Iterator[str]:
    if culprit is not None and culprit.mended:
        *most, last = [f"`{change.key}: {change.style}`" for change in culprit.changes]
        rules = f"{', '.join(most)} and {last}" if most else last
        whose = "as in the model's own plan" if all(c.from_model for c in culprit.changes) else "then it fits"
        yield f"{rules}, {whose}"
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


def _fix(context: "CheckContext", culprit: Culprit | None, beside: PlanRule | None) -> Fix | None:
    """The edits that make the changes of `culprit`; rules that the plan lacks go before the rule `beside`."""
    if culprit is None or not culprit.mended:
        return None
    edits: list[Edit] = []
    added: list[Change] = []
    for change in culprit.changes:
        if change.rule is not None and change.rule.origin == "user":
            edits.append(Edit(change.rule.style.span, change.style))
        else:
            added.append(change)
    if added:
        if beside is None or beside.origin != "user" or beside.span.is_virtual or beside.plan != "tp":
            return None
        edits.append(insertion(context, beside, added))
    written = dict.fromkeys(f"`{change.style}`" for change in culprit.changes if change not in added)
    words = [f"write {' and '.join(written)}"] if written else []
    words += [f"add {' and '.join(f'`{change.key}`' for change in added)}"] if added else []
    return Fix(", ".join(words), tuple(dict.fromkeys(edits)), safe=False)


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
