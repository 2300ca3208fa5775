"""Runs the rules and puts their findings in order."""

from collections.abc import Iterator, Sequence

from planc.check.registry import all_rules
from planc.check.rule import CheckContext, Rule
from planc.diagnostics.diagnostic import Diagnostic, Severity
from planc.diagnostics.span import Span

_RANK = {severity: rank for rank, severity in enumerate(Severity)}


def run(context: CheckContext, select: Sequence[str] = (), ignore: Sequence[str] = ()) -> list[Diagnostic]:
    """All findings about `context`, by place in the plan, the worst first where several share one.

    `select` and `ignore` hold codes, beginnings of codes (`PL3`) or names (`dead-rule`); an empty `select` means all.
    """
    return in_order(_settled([finding for rule in _chosen(select, ignore) for finding in rule.check(context)]))


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


def _line(span: Span | None) -> tuple[str, int] | None:
    return (span.file, span.line) if span else None


def _is_of_flow(finding: Diagnostic) -> bool:
    return finding.code.startswith("PL4")


def in_order(findings: Iterator[Diagnostic]) -> list[Diagnostic]:
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
