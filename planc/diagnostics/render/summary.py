"""One line that counts the findings."""

from collections import Counter
from collections.abc import Sequence

from planc.diagnostics.diagnostic import Report, Severity


def summary(reports: Sequence[Report]) -> str:
    """`3 plans checked: 1 error, 2 warnings in 1 plan`; what is unknown is counted too."""
    counts = Counter(d.severity for report in reports for d in report.diagnostics)
    checked = f"{counted(len(reports), 'plan')} checked: "
    found = [_severity(severity, counts[severity]) for severity in Severity if counts[severity]]
    if not found:
        return checked + "nothing to report"
    where = ""
    if len(reports) > 1:
        where = f" in {counted(sum(bool(report.diagnostics) for report in reports), 'plan')}"
    return checked + ", ".join(found) + where


def counted(count: int, noun: str) -> str:
    """`1 plan`, `2 plans`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _severity(severity: Severity, count: int) -> str:
    return f"{count} unknown" if severity is Severity.UNKNOWN else counted(count, severity.value)
