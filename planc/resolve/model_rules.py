"""The rules that a model brings along, as rules with places in a virtual source text."""

from collections.abc import Iterable, Mapping

from planc.diagnostics.span import Span
from planc.model.manifest import Manifest
from planc.syntax.plan import Indices, Key, Names, PlanKind, PlanRule, Segment, StyleUse, Wildcard


def source_name(manifest: Manifest, plan: PlanKind) -> str:
    """The virtual file that holds the model's own `plan`, as findings name it."""
    return f"<{manifest.file.class_name}.{plan}_plan>"


def model_rules(manifest: Manifest, plan: PlanKind) -> tuple[PlanRule, ...]:
    """The model's own rules of `plan`, in the model's order."""
    rules: Mapping[str, str] = getattr(manifest.file.plans, plan)
    return rules_at(source_name(manifest, plan), plan, rules.items())


def rules_at(file: str, plan: PlanKind, rules: Iterable[tuple[str, str]]) -> tuple[PlanRule, ...]:
    """Rules of origin `model`, one a line of the virtual `file`."""
    return tuple(_rule(file, plan, line, key, style) for line, (key, style) in enumerate(rules, start=1))


def source_text(rules: Iterable[PlanRule]) -> str:
    """The text in which the spans of `rules_at` point."""
    return "".join(f"{rule.key.text}: {rule.style.text}\n" for rule in rules)


def _rule(file: str, plan: PlanKind, line: int, key: str, style: str) -> PlanRule:
    middle, end = len(key) + 1, len(key) + 3 + len(style)
    return PlanRule(
        plan=plan,
        key=Key(key, tuple(map(_segment, key.split("."))), Span(file, line, 1, line, middle)),
        style=StyleUse(style, (), Span(file, line, middle + 2, line, end)),
        span=Span(file, line, 1, line, end),
        origin="model",
    )


def _segment(text: str) -> Segment:
    if text == "*":
        return Wildcard()
    if text.isdecimal():
        return Indices(((int(text), int(text)),))
    return Names((text,))
