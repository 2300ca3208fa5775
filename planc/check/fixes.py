"""Fixes that mend: each is made and the plan checked again before it is offered."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from planc.check.repairs import Change
from planc.diagnostics.diagnostic import Diagnostic, Edit, Fix
from planc.diagnostics.edits import apply_edits
from planc.diagnostics.span import Span
from planc.resolve.layout import derive_layout
from planc.resolve.resolver import resolve
from planc.syntax.matching import generic_name
from planc.syntax.parser import parse_text
from planc.syntax.plan import Plan, PlanRule

if TYPE_CHECKING:
    from planc.check.rule import CheckContext

# So many trials are made of one plan's fixes; what was never tried isn't offered.
_MOST_TRIED = 24
# Up to so many fixes of one code are tried one by one at first, more of them together.
_ONE_BY_ONE = 4
# What is wrong with a plan: how many findings of each code, and faults of the dataflow by what they are known by.
Faults = Counter[tuple[object, ...]]
Findings = Callable[["CheckContext"], list[Diagnostic]]


def insertion(context: "CheckContext", beside: PlanRule, rules: Iterable[Change]) -> Edit:
    """The edit that writes `rules` into a plan before the rule `beside`, in its style of YAML."""
    span = beside.span
    line = context.plan.sources[span.file].split("\n")[span.line - 1]
    before = line[: span.column - 1]
    quote = '"' if line[span.column - 1 : span.column] == '"' else ""
    apart = ", " if before.strip() else f"\n{before}"
    text = "".join(f"{quote}{rule.key}{quote}: {quote}{rule.style}{quote}{apart}" for rule in rules)
    return Edit(Span(span.file, span.line, span.column, span.line, span.column), text)


def proved(context: "CheckContext", findings: Sequence[Diagnostic], find: Findings) -> list[Diagnostic]:
    """`findings` with those fixes alone that leave fewer faults than before; `find` checks a plan.

    Fixes of one kind that mend nothing one by one, and everything together, become one fix of the first finding.
    """
    fixes: dict[str, list[Fix]] = {}
    for finding in findings:
        if finding.fix is not None and finding.fix not in fixes.setdefault(finding.code, []):
            fixes[finding.code].append(finding.fix)
    if not fixes:
        return list(findings)
    trials = _Trials(context, _faults(context, findings), find)
    offered = {fix: made for alike in fixes.values() for fix, made in _offered(alike, trials).items()}
    return [finding if finding.fix is None else replace(finding, fix=offered.get(finding.fix)) for finding in findings]


def _offered(alike: Sequence[Fix], trials: "_Trials") -> dict[Fix, Fix]:
    """Which fixes of one code are offered, and as what."""
    if len(alike) > _ONE_BY_ONE and (together := _together(alike, trials)):
        return together
    good = {fix: fix for fix in alike if trials.mends(fix.edits)}
    return good or _together(alike, trials)


def _together(alike: Sequence[Fix], trials: "_Trials") -> dict[Fix, Fix]:
    edits = tuple(edit for fix in alike for edit in fix.edits)
    if len(alike) < 2 or not trials.mends(edits, len(alike)):
        return {}
    message = f"{alike[0].message}, and so for {len(alike) - 1} more"
    return {alike[0]: Fix(message, edits, all(fix.safe for fix in alike))}


class _Trials:
    """Checks of one plan with edits, counted: `now` is what is wrong without any."""

    def __init__(self, context: "CheckContext", now: Faults, find: Findings) -> None:
        self.context, self.now, self.find = context, now, find
        self.left = _MOST_TRIED

    def mends(self, edits: Sequence[Edit], at_least: int = 1) -> bool:
        """Whether the plan with `edits` has fewer faults by `at_least`, and no other ones."""
        if not self.left:
            return False
        self.left -= 1
        edited = self._edited(edits)
        if edited is None:
            return False
        again, unread = edited
        after = _faults(again, [*unread, *self.find(again)])
        fewer = after <= self.now and self.now.total() - after.total() >= at_least
        # A fault that another one hides isn't mended.
        return fewer and again.flow.hidden <= self.context.flow.hidden

    def _edited(self, edits: Sequence[Edit]) -> tuple["CheckContext", list[Diagnostic]] | None:
        """The plan with `edits` and what is wrong with its text; None where it can't be edited or then read."""
        plan = self.context.plan
        if (
            plan.file is None
            or plan.file not in plan.sources
            or any(edit.span.file not in plan.sources for edit in edits)
        ):
            return None
        try:
            texts = {
                file: apply_edits(text, [edit for edit in edits if edit.span.file == file])
                for file, text in plan.sources.items()
            }
        except ValueError:
            return None
        parsed, unread = parse_text(texts[plan.file], plan.file, texts=texts)
        if parsed is None:
            return None
        layout = derive_layout(edited := _under(plan, parsed), self.context.world_size)
        resolved = resolve(edited, self.context.manifest, layout)
        return replace(self.context, plan=edited, layout=layout, resolved=resolved, searches=False), unread


def _under(plan: Plan, edited: Plan) -> Plan:
    """`edited` with what the caller said over the file of `plan`, as before."""
    sizes = {name: value for name, value in plan.sizes.items() if value.span.file not in edited.sources}
    options = {name: value for name, value in plan.options.items() if value.span.file not in edited.sources}
    return replace(
        edited,
        model=plan.model,
        sizes={**edited.sizes, **sizes},
        options={**edited.options, **options},
        sources={**plan.sources, **edited.sources},
    )


def _faults(context: "CheckContext", findings: Sequence[Diagnostic]) -> Faults:
    """What is wrong, by what doesn't depend on how findings are drawn together."""
    found: Faults = Counter((finding.code, finding.severity) for finding in findings if finding.code[:3] != "PL4")
    found[("not followed",)] = max((len(judgement.unfollowed) for judgement in context.flow.judgements), default=0)
    for problem, _ in context.flow.problems:
        found[(problem.kind, generic_name(problem.module), generic_name(problem.parameter or ""))] = 1
    return found
