"""One line a finding, for grep and for editors that read compilers' output."""

from collections.abc import Sequence

from planc.diagnostics.diagnostic import Diagnostic, Report
from planc.diagnostics.render.screen import Screen
from planc.diagnostics.render.text import location


def render(reports: Sequence[Report], screen: Screen) -> str:
    """`file:line:column: severity[code]: message`."""
    return "".join(f"{_line(d, report, screen)}\n" for report in reports for d in report.diagnostics)


def _line(diagnostic: Diagnostic, report: Report, screen: Screen) -> str:
    severity = screen.paint(f"{diagnostic.severity}[{diagnostic.code}]", diagnostic.severity)
    place = screen.paint(f"{screen.show(location(diagnostic, report))}:", "strong")
    return f"{place} {severity}: {screen.show(diagnostic.message)}"
