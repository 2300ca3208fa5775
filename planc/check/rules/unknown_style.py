"""PL106."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from planc.check.nearest import edit_distance, or_list
from planc.check.places import counted
from planc.check.rule import CheckContext, Rule
from planc.check.suggestions import MOST_EXPLAINED
from planc.diagnostics.codes import define
from planc.diagnostics.diagnostic import Diagnostic, Edit, Fix, Label, Severity
from planc.styles.registry import REMOVED, get, names
from planc.syntax.plan import PlanKind, PlanRule

# No style has a longer name, and how far a text is from each takes time by its length.
_LONGEST = 100
# What other libraries call a cut by output or by input features.
_OTHER_WORDS = {"col": "colwise", "column": "colwise", "columnwise": "colwise", "row": "rowwise"}


@define("PL106", "unknown-style", Severity.ERROR)
class UnknownStyle(Rule):
    """Looks for styles that nothing is registered under.

    transformers refuses the plan; other runtimes drop the rule, or the whole plan with it, and run unsharded. Custom
    styles are those that code registers with transformers (`ALL_PARALLEL_STYLES.register`), which `--styles-module`
    imports, and those of installed packages, through the entry point group `planc.styles`.

    Example:

        tp_plan:
          lm_head: colwise_gather

    Use instead:

        tp_plan:
          lm_head: colwise_gather_output

    Source: `DistributedMixin._validate_parallel_plan`, transformers 5.24.0.
    """

    def check(self, context: CheckContext) -> Iterator[Diagnostic]:
        unknown: dict[tuple[PlanKind, str], list[PlanRule]] = defaultdict(list)
        for rule in context.rules():
            name = rule.style.name
            if not (name in REMOVED or get(name, rule.plan) or get(name)):
                unknown[rule.plan, name].append(rule)
        listed: set[PlanKind] = set()
        for (plan, name), rules in list(unknown.items())[:MOST_EXPLAINED]:
            yield self._found(name, rules, [] if plan in listed else names(plan))
            listed.add(plan)
        rest = [rule for rules in list(unknown.values())[MOST_EXPLAINED:] for rule in rules]
        if rest:
            yield self.code.found(
                f"{counted(len(rest), 'more rule')} name no style",
                span=rest[0].style.span,
                label="unknown",
                labels=tuple(Label(other.style.span, "here, too") for other in rest[1:MOST_EXPLAINED]),
                key=rest[0].key.text,
            )

    def _found(self, name: str, rules: Sequence[PlanRule], present: Sequence[str]) -> Diagnostic:
        rule = rules[0]
        close = _close(name, rule.plan)
        fix = None
        if len(close) == 1:
            fix = Fix(f"write `{close[0]}`", tuple(Edit(other.style.span, close[0]) for other in rules))
        return self.code.found(
            f"`{name}` is no style" + (f", and {counted(len(rules), 'rule')} name it" if len(rules) > 1 else ""),
            span=rule.style.span,
            label=f"did you mean {or_list(close)}?" if close else "unknown",
            labels=tuple(Label(other.style.span, "here, too") for other in rules[1:]),
            key=rule.key.text,
            notes=("the rest of the plan is still checked",),
            help=(f"styles of `{rule.plan}_plan`: {', '.join(present)}",) if present else (),
            fix=fix,
        )


def _close(name: str, plan: PlanKind) -> list[str]:
    """The present style that `name` is another spelling of, those that begin with it, or else differ by few letters."""
    if len(name) > _LONGEST:
        return []
    present = [style for style in names(plan) if not getattr(get(style, plan), "renamed_to", None)]
    if (meant := _meant(name, present)) is not None:
        return [meant]
    begun = [style for style in present if style.startswith(name) and len(name) > 3]
    if begun:
        return begun[:1]
    most = max(2, len(name) // 3)
    ranked = sorted((edit_distance(name, style), style) for style in present)
    return [style for distance, style in ranked if distance <= most][:3]


def _meant(name: str, present: list[str]) -> str | None:
    """The style that `name` is in other words: `column_wise`, `ColwiseParallel` of torch, `RowParallelLinear`."""
    letters = name.lower().replace("_", "").replace("-", "")
    shorter = letters.removesuffix("linear").removesuffix("parallel")
    wanted = {letters, shorter, _OTHER_WORDS.get(shorter, "")}
    return next((style for style in present if style.replace("_", "") in wanted), None)
