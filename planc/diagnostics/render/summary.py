"""One line that counts the findings."""

from collections import Counter
from collections.abc import Sequence

from planc.diagnostics.diagnostic import Report, Severity


def summary(reports: Sequence[Report]) -> str:
    """`3 plans checked: 1 error, 2 warnings in 1 plan, 3 notes`; what is unknown is counted too."""
    noun = reports[0].subject if reports else "plan"
    counts = Counter(d.severity for report in reports for d in report.diagnostics)
    serious = [_severity(s, counts[s]) for s in Severity if counts[s] and s is not Severity.NOTE]
    found = []
    if serious:
        found.append(", ".join(serious) + (f" in {counted(_faulty(reports), noun)}" if len(reports) > 1 else ""))
    if notes := counts[Severity.NOTE]:
        found.append(counted(notes, "note"))
    return f"{counted(len(reports), noun)} checked: {', '.join(found) or 'nothing to report'}"


def _faulty(reports: Sequence[Report]) -> int:
    """How many plans have more than notes."""
    return sum(any(d.severity is not Severity.NOTE for d in report.diagnostics) for report in reports)


def counted(count: int, noun: str) -> str:
    """`1 plan`, `2 plans`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _severity(severity: Severity, count: int) -> str:
    return f"{count} unknown" if severity is Severity.UNKNOWN else counted(count, severity.value)
