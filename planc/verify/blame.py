"""Which rule did it: swap rules for others until the copy agrees."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from planc.check.checker import run as check
from planc.check.rule import CheckContext
from planc.program.errors import ProgramError
from planc.resolve.model_rules import rules_at
from planc.resolve.resolved import ResolvedPlan
from planc.resolve.resolver import resolve
from planc.syntax.matching import generic_name
from planc.syntax.plan import Plan, PlanKind, PlanRule, PlanSection
from planc.verify.applying import ByProgram
from planc.verify.case import PLANS, Case
from planc.verify.observing import Steps
from planc.verify.trial import Laboratory, Trial

_SECONDS = 12.0
"""No more is spent on the search: the finding stands without it."""
_SWAPS = (
    "replicated_with_grad_allreduce", "colwise", "rowwise", "colwise_gather_output", "rowwise_split_input",
    "packed_colwise", "packed_rowwise", "embedding_rowwise", "moe_tp_experts", "local_params", "replicate",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Blame:
    """The rule at fault, and what mends it: another style for its key, or (None) leaving it out.

    Where no rule that exists is at fault but one is missing, `added` is that rule, and `rule` None. `alone` tells that
    the rule is one of several at fault.
    """

    rule: PlanRule | None
    style: str | None = None
    added: PlanRule | None = None
    alone: bool = False


class Search:
    """Trials of variants of a plan that failed, within a time limit."""

    def __init__(self, case: Case, laboratory: Laboratory, plan: Plan) -> None:
        self._case = case
        self._laboratory = laboratory
        self._plan = plan
        self._until = time.monotonic() + _SECONDS

    def blame(self, failed: Trial) -> tuple[Blame, ...]:
        """The rules to blame for a failed trial; nothing where no swap mends the copy."""
        resolved = self._case.resolved(self._plan)
        users = [rule for rule in _active(resolved) if rule.origin == "user"]
        if users and self._agrees(_without(self._plan, users)):
            return tuple(self._of_users(users))
        if blame := self._missing(failed):
            return (blame,)
        suspects = users or [rule for rule in _active(resolved) if self._concerns(rule, resolved, failed)]
        return tuple(self._swapped(suspects))

    def _of_users(self, users: Sequence[PlanRule]) -> Iterator[Blame]:
        """All of the user's rules out is right: the one without which it is right as well, or that another style mends.

        Where several are at fault, those that are wrong without the others.
        """
        guilty = [rule for rule in users if len(users) == 1 or self._agrees(_without(self._plan, [rule]))]
        if not guilty and (swapped := list(self._swapped(users))):
            yield from swapped
            return
        alone = not guilty
        guilty = guilty or [r for r in users if not self._agrees(_without(self._plan, [o for o in users if o != r]))]
        for rule in guilty:
            yield Blame(rule, self._models_style(rule), alone=alone)

    def _models_style(self, rule: PlanRule) -> str | None:
        own = getattr(self._case.small.file.plans, rule.plan)
        return own.get(rule.key.text) if self._plan.defaults == "model" else None

    def _missing(self, failed: Trial) -> Blame | None:
        """A rule that sums the gradients that depart, where nothing else does."""
        parts = {departure.part for departure in failed.departures}
        if failed.stopped is not None or "gradients" not in parts or not parts <= {"gradients", "stepped"}:
            return None
        names = [departure.name for departure in failed.departures if departure.part == "gradients"]
        keys = dict.fromkeys(generic_name(name.rpartition(".")[0]) for name in names)
        added = rules_at("<verify>", "tp", [(key, "replicated_with_grad_allreduce") for key in keys])
        return Blame(None, added=added[0]) if self._agrees(_with(self._plan, added)) else None

    def _concerns(self, rule: PlanRule, resolved: ResolvedPlan, failed: Trial) -> bool:
        """Whether a rule names a parameter that departs, or its module."""
        names = {departure.name for departure in failed.departures}
        return any(name.startswith(match) for match in resolved.matches.get(rule, ()) for name in names)

    def _swapped(self, suspects: Sequence[PlanRule]) -> Iterator[Blame]:
        for rule in suspects:
            for style in (self._models_style(rule), *_SWAPS):
                if style is None or style == rule.style.text or time.monotonic() > self._until:
                    continue
                swap = rules_at("<verify>", rule.plan, [(rule.key.text, style)])
                if self._agrees(_with(self._plan, swap)):
                    idle = self._is_idle(replace(rule, style=swap[0].style))
                    yield Blame(rule, "replicate" if idle else style)
                    return

    def _is_idle(self, rule: PlanRule) -> bool:
        """Whether `rule` of the user's does nothing (PL110)."""
        if rule.origin != "user":
            return False
        plan = _with(self._plan, [rule])
        model, layout = self._case.large, self._case.layout
        context = CheckContext(plan, model, layout, resolve(plan, model, layout))
        return any(finding.key == rule.key.text for finding in check(context, ("PL110",)))

    def _agrees(self, plan: Plan) -> bool:
        if time.monotonic() > self._until:
            return False
        try:
            program = self._case.program(plan)
        except ProgramError:
            return False
        return self._laboratory.trial(ByProgram(program), Steps()).agrees


def _active(resolved: ResolvedPlan) -> list[PlanRule]:
    """Rules that some module or parameter follows."""
    return list(dict.fromkeys(a.rule for kind in PLANS for a in resolved.plan(kind).values()))


def _without(plan: Plan, rules: Sequence[PlanRule]) -> Plan:
    def section(kind: PlanKind) -> PlanSection:
        old = plan.section(kind)
        kept = tuple(rule for rule in old.rules if rule not in rules)
        # No rule at all would mean something else: an empty plan applies none of the model's own.
        return replace(old, rules=kept) if kept or not old.rules else PlanSection()

    return replace(plan, tp_plan=section("tp"), ep_plan=section("ep"), fsdp_plan=section("fsdp"))


def _with(plan: Plan, rules: Sequence[PlanRule]) -> Plan:
    """`plan` with `rules` of one kind after its own."""
    kind: PlanKind = rules[0].plan
    section = plan.section(kind)
    more = replace(section, state="rules", rules=(*section.rules, *rules))
    match kind:
        case "tp":
            return replace(plan, tp_plan=more)
        case "ep":
            return replace(plan, ep_plan=more)
        case _:
            return replace(plan, fsdp_plan=more)
