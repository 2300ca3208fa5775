"""Exit statuses."""

from collections.abc import Iterable

from planc.diagnostics.diagnostic import Report, Severity

OK = 0
FOUND = 1
USAGE = 2
FAILURE = 3
# As a shell reports a program that SIGINT or SIGPIPE ended.
INTERRUPTED = 130
NO_READER = 141

# Findings that mean that an input could not be read: the plan's file, the model, no model at all, the checkpoint.
UNREADABLE = frozenset({"PL002", "PL051", "PL052", "PL801"})


def exit_status(reports: Iterable[Report], strict: bool = False) -> int:
    """The status of the worst of `reports`; with `strict`, warnings and unknowns fail too."""
    return max((_status(report, strict) for report in reports), default=OK)


def _status(report: Report, strict: bool) -> int:
    if any(d.code in UNREADABLE for d in report.diagnostics):
        return USAGE
    failing = {Severity.ERROR, Severity.WARNING, Severity.UNKNOWN} if strict else {Severity.ERROR}
    return FOUND if any(d.severity in failing for d in report.diagnostics) else OK
