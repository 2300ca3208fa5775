"""Runs the rules and puts their findings in order."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from planc.check.fixes import proved
from planc.check.registry import all_rules
from planc.check.rule import CheckContext, Rule
from planc.diagnostics.codes import CODES
from planc.diagnostics.diagnostic import Diagnostic, Severity
from planc.diagnostics.span import Span

_RANK = {severity: rank for rank, severity in enumerate(Severity)}


def run(
    context: CheckContext, select: Sequence[str] = (), ignore: Sequence[str] = (), unread: Sequence[Diagnostic] = ()
) -> list[Diagnostic]:
    """All findings about `context`, by place in the plan, the worst first where several share one.

    `select` and `ignore` hold codes, beginnings of codes (`PL3`) or names (`dead-rule`); an empty `select` means all.
    `unread` is what was found in the plan's text before; it is among the findings.
    """
    rules = list(_chosen(select, ignore))
    findings = [*unread, *_found(rules, context)]
    findings = proved(context, findings, lambda other: _found(rules, other))
    told = _with_consequences(_settled(findings[len(unread) :]))
    return in_order((*findings[: len(unread)], *told))


def _found(rules: Iterable[Rule], context: CheckContext) -> list[Diagnostic]:
    return [finding for rule in rules for finding in rule.check(context)]


def _settled(findings: list[Diagnostic]) -> Iterator[Diagnostic]:
    """One finding a cause: what flows between modules (PL4xx) is beside the point where the rule itself is refuted."""
    errors = [finding for finding in findings if finding.severity is Severity.ERROR and not _is_of_flow(finding)]
    keys = {finding.key for finding in errors}
    lines = {
        line for finding in errors for line in map(_line, (finding.span, *(label.span for label in finding.labels)))
    }
    for finding in findings:
        is_settled = finding.key is not None and (finding.key in keys or _line(finding.span) in lines)
        if not (_is_of_flow(finding) and is_settled):
            yield finding


def _with_consequences(findings: Iterable[Diagnostic]) -> Iterator[Diagnostic]:
    """One finding a cause: what the same key does to the dataflow is told by its first fault, forward ones first."""
    by_cause: dict[object, list[Diagnostic]] = {}
    for finding in findings:
        shared = _is_of_flow(finding) and finding.severity is Severity.ERROR and finding.key is not None
        by_cause.setdefault((finding.key, finding.span) if shared else id(finding), []).append(finding)
    for first, *others in (sorted(group, key=_is_of_gradient) for group in by_cause.values()):
        told = dict.fromkeys(f"and so: {other.message}" for other in others)
        yield replace(first, notes=(*first.notes, *told)) if told else first


def _is_of_gradient(finding: Diagnostic) -> bool:
    return "gradient" in CODES[finding.code].name


def _line(span: Span | None) -> tuple[str, int] | None:
    return (span.file, span.line) if span else None


def _is_of_flow(finding: Diagnostic) -> bool:
    return finding.code.startswith("PL4")


def in_order(findings: Iterable[Diagnostic]) -> list[Diagnostic]:
    """`findings` without repetitions, in an order that doesn't depend on the order of the rules."""
    return sorted(dict.fromkeys(findings), key=_place)


def _chosen(select: Sequence[str], ignore: Sequence[str]) -> Iterator[Rule]:
    for rule in all_rules():
        if (not select or _names(rule, select)) and not _names(rule, ignore):
            yield rule


def _names(rule: Rule, choices: Sequence[str]) -> bool:
    return any(rule.code.code.startswith(choice) or rule.code.name == choice for choice in choices)


def _place(finding: Diagnostic) -> tuple[bool, str, int, int, int, str, str]:
    span = finding.span
    file, line, column = (span.file, span.line, span.column) if span else ("", 0, 0)
    virtual = span is None or span.is_virtual
    return virtual, file, line, column, _RANK[finding.severity], finding.code, finding.message
