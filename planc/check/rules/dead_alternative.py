"""PL105."""

from collections.abc import Iterator

from planc.check.nearest import nearest, or_list
from planc.check.places import ranges
from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Severity
from planc.syntax.plan import Indices, Names, PlanRule


@define("PL105", "dead-alternative", Severity.ERROR)
class DeadAlternative(Rule):
    """Looks for a part of a key that names nothing, while the rest of the key does.

    One misspelt name in an alternation, or layer numbers that the model doesn't have.

    Example:

        tp_plan:
          model.layers.*.mlp.{gate,upp}_proj: colwise

    Use instead:

        tp_plan:
          model.layers.*.mlp.{gate,up}_proj: colwise
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        for rule in context.rules():
            matches = [name.split(".") for name in context.resolved.matches[rule]]
            if not matches or rule.key.is_portable:
                continue
            for at, segment in enumerate(rule.key.segments):
                seen = {segments[at] for segments in matches}
                if isinstance(segment, Names):
                    yield from self._names(rule, at, segment, seen, context)
                elif isinstance(segment, Indices):
                    yield from self._indices(rule, segment, {int(number) for number in seen})

    def _names(
        self, rule: PlanRule, at: int, segment: Names, seen: set[str], context: CheckContext
    ) -> Iterator[Diagnostic]:
        for name in segment.alternatives:
            if name not in seen:
                others = {other.split(".")[at] for other in context.names if other.count(".") >= at}
                close = nearest(name, others - seen)
                named = ", ".join(f"`{other}`" for other in sorted(seen))
                yield self.code.found(
                    f"`{name}` in `{rule.key.text}` names nothing, while {named} {'do' if len(seen) > 1 else 'does'}",
                    span=rule.key.span,
                    label=f"no `{name}` here",
                    key=rule.key.text,
                    help=(f"did you mean {or_list(close)}?",) if close else (),
                )

    def _indices(self, rule: PlanRule, segment: Indices, seen: set[int]) -> Iterator[Diagnostic]:
        for first, last in segment.ranges:
            # Bounds, not every number: a range may be enormous.
            inside = {number for number in seen if first <= number <= last}
            if first in inside and last in inside:
                continue
            yield self.code.found(
                f"`{first}-{last}` in `{rule.key.text}` reaches numbers that the model doesn't have"
                if first != last
                else f"`{first}` in `{rule.key.text}` is a number that the model doesn't have",
                span=rule.key.span,
                label=f"named here: {ranges(inside)}" if inside else "names nothing",
                key=rule.key.text,
                severity=Severity.WARNING if inside else Severity.ERROR,
            )
