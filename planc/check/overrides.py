"""Where a plan departs from the model's own, which its authors have run."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from planc.check.across_batches import mixed
from planc.check.effects import acts
from planc.check.rule import CheckContext
from planc.flow.analysis import is_inside
from planc.layouts.placement import Placement
from planc.resolve.resolved import Assignment
from planc.styles.custom import ForeignStyle
from planc.styles.registry import create
from planc.syntax.matching import generic_name
from planc.syntax.plan import PlanKind, PlanRule

KINDS: tuple[PlanKind, ...] = ("tp", "ep")


@dataclass(frozen=True, slots=True)
class Departure:
    """Targets of `rule` for which the model's own plan says `own`, something else than the rule, or nothing (None)."""

    rule: PlanRule
    own: str | None
    targets: tuple[str, ...]


def departures(context: CheckContext) -> Iterator[Departure]:
    """What the user's rules say otherwise than the model's own plan, one a rule and style replaced."""
    for kind in KINDS:
        own = context.own.plan(kind)
        groups: dict[tuple[PlanRule, str | None], list[str]] = defaultdict(list)
        for target, assignment in context.resolved.plan(kind).items():
            if assignment.rule.origin == "user" and not (assignment.is_parameter and assignment.by_module):
                given = own.get(target)
                if not _same(assignment, given, context):
                    groups[assignment.rule, _meaning(given, context)].append(target)
        for (rule, before), targets in groups.items():
            yield Departure(rule, before, tuple(targets))


def left_out(context: CheckContext) -> Mapping[PlanRule, tuple[str, ...]]:
    """Rules of the model's own plan whose targets no rule names any more, with these targets."""
    groups: dict[PlanRule, list[str]] = defaultdict(list)
    for kind in KINDS:
        now = context.resolved.plan(kind)
        for target, assignment in context.own.plan(kind).items():
            if target not in now and not (assignment.is_parameter and assignment.by_module):
                groups[assignment.rule].append(target)
    return {rule: tuple(targets) for rule, targets in groups.items()}


def unwatched(plan: PlanKind, targets: Iterable[str], context: CheckContext) -> tuple[str, ...]:
    """Those of `targets` of which nothing is proved: all of a plan that the dataflow doesn't judge and PL218 doesn't
    refute, else what the recorded run never reached, as the vision tower of a model that was watched on text."""
    flow = context.flow.flow
    if plan == "ep":
        refuted = set(mixed(context))
        targets = tuple(target for target in targets if target not in refuted)
    is_followed = plan == "tp" or context.layout.ep_size == context.layout.tp_size
    if not is_followed or flow is None or not context.flow.is_judged:
        return tuple(targets)
    parameters = (source.removeprefix("parameter:") for source in flow.sources.values())
    reached = {generic_name(name) for name in (*flow.modules, *parameters)}
    closed = context.flow.opaque
    return tuple(target for target in targets if generic_name(target) not in reached or is_inside(target, closed))


def _same(now: Assignment, before: Assignment | None, context: CheckContext) -> bool:
    if _meaning(now, context) == _meaning(before, context):
        return True
    # Styles place parameters, and that is all: that some of them also count experts is PL216's affair.
    return now.is_parameter and before is not None and _placement(now, context) == _placement(before, context)


def _placement(assignment: Assignment, context: CheckContext) -> Placement | str | None:
    style = create(assignment.style, assignment.rule.plan)
    if style is None or isinstance(style, ForeignStyle):
        return assignment.style.text
    return style.placement(context.manifest.parameters[assignment.target][1])


def _meaning(assignment: Assignment | None, context: CheckContext) -> str | None:
    """The style under its present name with all of its arguments; None for a style that changes nothing."""
    if assignment is None or not acts(assignment, context):
        return None
    style = create(assignment.style, assignment.rule.plan)
    if style is None:
        return assignment.style.text
    name = style.renamed_to or style.name
    arguments = ", ".join(f"{key}={value}" for key, value in style.values.items())
    return f"{name}({arguments})" if arguments else name
