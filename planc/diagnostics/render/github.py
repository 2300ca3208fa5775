"""Findings as workflow commands of GitHub Actions, which shows them beside the plan's lines."""

from collections.abc import Sequence

from planc.diagnostics.codes import CODES
from planc.diagnostics.diagnostic import Diagnostic, Report, Severity
from planc.diagnostics.render.screen import Screen

COMMANDS = {
    Severity.ERROR: "error",
    Severity.WARNING: "warning",
    Severity.UNKNOWN: "notice",
    Severity.NOTE: "notice",
}


def render(reports: Sequence[Report], screen: Screen) -> str:
    """One `::error file=…,line=…,col=…,title=…::message` a finding."""
    return "".join(f"{_command(d, report, screen)}\n" for report in reports for d in report.diagnostics)


def _command(diagnostic: Diagnostic, report: Report, screen: Screen) -> str:
    code = CODES.get(diagnostic.code)
    title = f"{diagnostic.code} {code.name}" if code else diagnostic.code
    if diagnostic.severity is Severity.UNKNOWN:
        title += " (unknown)"
    properties = {**_place(diagnostic, report), "title": title}
    listed = ",".join(f"{name}={_property(screen.show(value))}" for name, value in properties.items())
    message = "\n".join(screen.show(line) for line in _message(diagnostic).split("\n"))
    return f"::{COMMANDS[diagnostic.severity]} {listed}::{_data(message)}"


def _place(diagnostic: Diagnostic, report: Report) -> dict[str, str]:
    """File, line and columns; a virtual source has none, so its finding is shown on the plan as a whole."""
    span = diagnostic.span
    if span is None or span.is_virtual:
        return {"file": report.plan_file} if report.plan_file and not report.plan_file.startswith("<") else {}
    place = {"file": span.file, "line": str(span.line), "endLine": str(span.end_line)}
    if span.line == span.end_line:  # GitHub ignores columns of an annotation over several lines.
        place |= {"col": str(span.column), "endColumn": str(span.end_column)}
    return place


def _message(diagnostic: Diagnostic) -> str:
    lines = [diagnostic.message]
    if diagnostic.label:
        lines.append(diagnostic.label)
    lines += [f"{label.span.file}:{label.span.line}:{label.span.column}: {label.text}" for label in diagnostic.labels]
    lines += diagnostic.notes
    lines += [f"help: {text}" for text in diagnostic.help]
    if diagnostic.fix:
        lines.append(f"fix: {diagnostic.fix.message}")
    return "\n".join(lines)


def _data(text: str) -> str:
    """Escapes of github.com/actions/toolkit, packages/core/src/command.ts, for a command's data."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """Escapes of the same file, for a command's properties."""
    return _data(text).replace(":", "%3A").replace(",", "%2C")
