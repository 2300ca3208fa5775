"""Which rule of a plan is at fault where its dataflow doesn't fit: the one whose change mends it, by trying."""

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, replace
from itertools import islice
from math import prod
from typing import TYPE_CHECKING, Any

from planc.check.repairs import Change, repairs
from planc.flow.analysis import FlowAnalysis, analyse
from planc.flow.problems import Problem
from planc.syntax.plan import PlanRule

if TYPE_CHECKING:
    from planc.check.rule import CheckContext

# So many changes of the plan are tried to find which rule is at fault.
_MOST_TRIALS = 40
# By what a fault is known again under another plan.
Mark = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Culprit:
    """The changes that mend a fault; where it isn't `mended`, another fault takes its place.

    `cause` is a rule of the user's that brought the fault about, where the repair is better made elsewhere.
    """

    changes: tuple[Change, ...]
    mended: bool = True
    cause: PlanRule | None = None

    @property
    def rule(self) -> PlanRule | None:
        """The first rule of the plan that is changed; None where rules are only added."""
        return next((change.rule for change in self.changes if change.rule is not None), None)

    @property
    def key(self) -> str:
        """The key of the first change."""
        return self.changes[0].key


@dataclass(frozen=True, slots=True)
class _Tried:
    """A repair that helps: what is left with it, and how many parameter elements it shards."""

    culprit: Culprit
    left: Set[Mark]
    sharded: int


def culprits(context: "CheckContext") -> Mapping[Mark, Culprit]:
    """For each fault, the changes that mend it: those that keep all that is sharded before others."""
    analysis = context.flow
    open_problems = {mark_of(problem): problem for problem, _ in analysis.problems}
    found: dict[Mark, Culprit] = {}
    if not open_problems:
        return found
    now = _sharded(analysis)
    weaker: list[_Tried] = []
    others: list[_Tried] = []
    for tried in _trials(context, analysis, open_problems):
        if not tried.culprit.mended:
            others.append(tried)
        elif tried.sharded < now:
            weaker.append(tried)
        else:
            _settle(open_problems, tried, found)
            if not open_problems:
                break
    for tried in sorted(weaker, key=lambda tried: -tried.sharded):
        _settle(open_problems, tried, found)
    for mark, culprit in found.items():
        causes = [tried.culprit.rule for tried in others if mark not in tried.left and _is_users(tried.culprit.rule)]
        if causes and not _is_users(culprit.rule):
            found[mark] = replace(culprit, cause=causes[0])
    # Nothing to advise, but a place to point to: the rule whose change moves the fault elsewhere.
    for tried in others:
        _settle(open_problems, tried, found)
    return found


def _trials(context: "CheckContext", analysis: FlowAnalysis, open_problems: Mapping[Mark, Problem]) -> Iterator[_Tried]:
    """The repairs that leave fewer faults, each tried when it is asked for.

    Behind a fault another one may hide: a repair may bring out what is wrong with the model's own plan.
    """
    released = analyse(context.manifest, context.layout, context.own)
    own = {mark_of(problem) for problem, _ in released.problems}
    known = own | open_problems.keys()
    lost, hidden = max(_lost(analysis), _lost(released)), max(analysis.hidden, released.hidden)
    for repair in islice(repairs(context, list(open_problems.values())), _MOST_TRIALS):
        tried = analysis.with_styles(repair.styles)
        left = {mark_of(problem) for problem, _ in tried.problems}
        if len(left - own) <= len(known - own) and _lost(tried) <= lost:
            # A fault that another one hides isn't mended.
            mended = left <= known and tried.hidden <= hidden
            yield _Tried(Culprit(repair.changes, mended), left, _sharded(tried))


def _is_users(rule: PlanRule | None) -> bool:
    return rule is not None and rule.origin == "user"


def _settle(open_problems: dict[Mark, Problem], tried: _Tried, found: dict[Mark, Culprit]) -> None:
    """Every open problem that isn't left is this culprit's."""
    for mark in [mark for mark in open_problems if mark not in tried.left]:
        del open_problems[mark]
        found[mark] = tried.culprit


def _sharded(analysis: FlowAnalysis) -> int:
    """How many parameter elements the styles of an analysis shard."""
    assert analysis.manifest is not None
    found = 0
    for name, style in analysis.styles.items():
        if name in analysis.manifest.parameters:
            entry = analysis.manifest.parameters[name][1]
            if style.placement(entry) is not None:
                found += prod(entry.shape)
    return found


def _lost(analysis: FlowAnalysis) -> int:
    """How much could not be followed."""
    return sum(len(judgement.unfollowed) for judgement in analysis.judgements)


def mark_of(problem: Problem) -> Mark:
    """By what a fault is known again under another plan."""
    return (problem.kind, problem.module, problem.operation, problem.parameter)
