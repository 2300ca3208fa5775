"""What an EP plan of the time when masking was a pair of styles is written as now.

Until transformers 5.22 `ep_router` on the router and `moe_tp_experts` on the experts masked and summed; beside
`ep_dispatch_experts` the router's rule did nothing. Since 5.23 masking is `ep_implementation: all_reduce` beside the
model's own EP plan.
"""

import re
from itertools import pairwise

from planc.check.rule import CheckContext
from planc.diagnostics.diagnostic import Edit, Fix
from planc.diagnostics.span import Span
from planc.syntax.plan import PlanRule, PlanSection

ROUTER, EXPERTS = "ep_router", "moe_tp_experts"
_KEY = re.compile(r"""(["']?)ep_plan\1\s*:\s*\Z""")


def own_plan_instead(context: CheckContext) -> Fix | None:
    """The option in place of an old `ep_plan` that does nothing beside masking; None where there is more to it.

    Masking needs one batch in an expert group. With several the old plan never ran, and tokens must be exchanged.
    """
    section = context.plan.ep_plan
    if "ep_implementation" in context.plan.options or not _is_own(section, context):
        return None
    found = _written(section, context)
    if found is None:
        return None
    span, quote = found
    masked = any(rule.style.name == EXPERTS for rule in section.rules)
    one_batch = context.layout.ep_size == context.layout.tp_size
    name, how = ("all_reduce", "masked") if masked and one_batch else ("auto", "with tokens that are exchanged")
    text = f"{quote}ep_implementation{quote}: {quote}{name}{quote}"
    return Fix(f"the model's own EP plan, {how}", (Edit(span, text),), safe=one_batch or not masked)


def without(rule: PlanRule, context: CheckContext) -> Fix | None:
    """The section without `rule`; None for its only rule: an empty plan has another meaning."""
    span = entry_span(rule, context)
    return Fix("drop the rule", (Edit(span, ""),)) if span is not None else None


def entry_span(rule: PlanRule, context: CheckContext) -> Span | None:
    """What to delete for `rule` to be gone from a section that has others: its line, or itself and a comma."""
    section = context.plan.section(rule.plan)
    if section.span is None or section.span.file != rule.span.file:
        return None
    lines = context.plan.sources.get(rule.span.file, "").split("\n")
    rules = [other for other in section.rules if other.span.file == rule.span.file]
    if len(rules) < 2:
        return None
    in_braces = lines[section.span.line - 1][section.span.column - 1] == "{"
    return _with_comma(rule, rules) if in_braces else _whole_line(rule, lines)


def _with_comma(rule: PlanRule, rules: list[PlanRule]) -> Span:
    """`rule` and the comma on one of its sides."""
    span = rule.span
    for before, after in pairwise(rules):
        if before is rule:
            return Span(span.file, span.line, span.column, after.span.line, after.span.column)
        if after is rule:
            span = Span(span.file, before.span.end_line, before.span.end_column, span.end_line, span.end_column)
    return span


def _whole_line(rule: PlanRule, lines: list[str]) -> Span | None:
    """The line of `rule`, with the line feed before it; None where it takes several."""
    span = rule.span
    if span.line != span.end_line or span.line < 2:
        return None
    return Span(span.file, span.line - 1, len(lines[span.line - 2]) + 1, span.line, len(lines[span.line - 1]) + 1)


def _is_own(section: PlanSection, context: CheckContext) -> bool:
    """Whether all that `section` does beside masking is in the model's own EP plan, too."""
    own = {rule.key.text: rule.style.text for rule in context.own.rules["ep"]}
    return bool(own) and all(
        rule.style.name in (ROUTER, EXPERTS) or own.get(rule.key.text) == rule.style.text for rule in section.rules
    )


def _written(section: PlanSection, context: CheckContext) -> tuple[Span, str] | None:
    """Where the section stands with its name, and the quote around that; None where it is in several files."""
    span = section.span
    if span is None or any(rule.span.file != span.file for rule in section.rules):
        return None
    lines = context.plan.sources.get(span.file, "").split("\n")
    before = "\n".join([*lines[: span.line - 1], lines[span.line - 1][: span.column - 1]])
    key = _KEY.search(before)
    if key is None:
        return None
    head = before[: key.start()]
    line, column = head.count("\n") + 1, len(head) - (head.rfind("\n") + 1) + 1
    return Span(span.file, line, column, span.end_line, span.end_column), key[1]
