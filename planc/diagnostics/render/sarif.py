"""Findings as SARIF 2.1.0 (OASIS Standard), for code scanning.

Section numbers are those of the standard. Virtual sources, as the command line, have no physical location.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from planc.diagnostics.codes import CODES
from planc.diagnostics.diagnostic import Diagnostic, Edit, Fix, Label, Report, Severity
from planc.diagnostics.render.screen import Screen
from planc.diagnostics.span import Span

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.UNKNOWN: "none", Severity.NOTE: "note"}
Json = dict[str, Any]


def render(reports: Sequence[Report], screen: Screen) -> str:
    """One run for all reports: code scanning takes a single run of a tool."""
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [_run(reports)]}, indent=2) + "\n"


def _run(reports: Sequence[Report]) -> Json:
    codes = sorted({d.code for report in reports for d in report.diagnostics})
    files = sorted({span.file for report in reports for d in report.diagnostics for span in _spans(d) if _real(span)})
    return {
        "tool": {"driver": {"name": "planc", "version": _version(), "rules": [_rule(code) for code in codes]}},
        "columnKind": "unicodeCodePoints",
        "artifacts": [{"location": _artifact(file)} for file in files],
        "results": [_result(d, report, codes.index(d.code)) for report in reports for d in report.diagnostics],
    }


def _version() -> str:
    from importlib.metadata import version

    return version("planc")


def _rule(code: str) -> Json:
    """A reportingDescriptor (3.49); the help is what `planc explain` prints."""
    known = CODES.get(code)
    if known is None:
        return {"id": code}
    summary = known.documentation.partition("\n\n")[0].replace("\n", " ")
    return {
        "id": code,
        "name": known.name,
        "shortDescription": {"text": summary or known.name},
        "help": {"text": known.documentation or known.name, "markdown": known.documentation or known.name},
        "defaultConfiguration": {"level": LEVELS[known.severity]},
    }


def _result(diagnostic: Diagnostic, report: Report, rule: int) -> Json:
    """A result (3.27). What is unknown is of kind `open`, whose level must be `none` (3.27.9, 3.27.10)."""
    result: Json = {
        "ruleId": diagnostic.code,
        "ruleIndex": rule,
        "kind": "open" if diagnostic.severity is Severity.UNKNOWN else "fail",
        "level": LEVELS[diagnostic.severity],
        "message": {"text": _message(diagnostic)},
        "locations": [_location(diagnostic, report)],
        "properties": {
            "model": report.model_name,
            "key": diagnostic.key,
            "targetCount": max(diagnostic.target_count, len(diagnostic.targets)),
        },
    }
    if diagnostic.labels:
        result["relatedLocations"] = [_related(number, label) for number, label in enumerate(diagnostic.labels)]
    if diagnostic.fix and diagnostic.fix.edits and all(_real(edit.span) for edit in diagnostic.fix.edits):
        result["fixes"] = [_fix(diagnostic.fix)]
    return result


def _message(diagnostic: Diagnostic) -> str:
    label = [diagnostic.label] if diagnostic.label else []
    return "\n".join([diagnostic.message, *label, *diagnostic.notes, *(f"help: {text}" for text in diagnostic.help)])


def _location(diagnostic: Diagnostic, report: Report) -> Json:
    """Where the finding stands; one without a real place stands on the plan as a whole."""
    location: Json = {}
    span = diagnostic.span
    if span and not span.is_virtual:
        location["physicalLocation"] = {"artifactLocation": _artifact(span.file), "region": _region(span)}
    elif report.plan_file and not report.plan_file.startswith("<"):
        location["physicalLocation"] = {"artifactLocation": _artifact(report.plan_file)}
    if diagnostic.targets:
        location["logicalLocations"] = [{"fullyQualifiedName": target} for target in diagnostic.targets]
    if span and span.is_virtual:
        location["message"] = {"text": _virtual(span)}
    return location or {"message": {"text": report.model_name or "planc"}}


def _related(number: int, label: Label) -> Json:
    if label.span.is_virtual:
        return {"id": number, "message": {"text": f"{_virtual(label.span)}: {label.text}"}}
    physical = {"artifactLocation": _artifact(label.span.file), "region": _region(label.span)}
    return {"id": number, "message": {"text": label.text}, "physicalLocation": physical}


def _fix(fix: Fix) -> Json:
    by_file: dict[str, list[Edit]] = {}
    for edit in fix.edits:
        by_file.setdefault(edit.span.file, []).append(edit)
    changes = [
        {"artifactLocation": _artifact(file), "replacements": [_replacement(edit) for edit in edits]}
        for file, edits in by_file.items()
    ]
    return {"description": {"text": fix.message}, "artifactChanges": changes, "properties": {"safe": fix.safe}}


def _replacement(edit: Edit) -> Json:
    return {"deletedRegion": _region(edit.span), "insertedContent": {"text": edit.replacement}}


def _region(span: Span) -> Json:
    """A region (3.30): columns count from 1 and the end column is exclusive, exactly as in `Span`."""
    return {
        "startLine": span.line,
        "startColumn": span.column,
        "endLine": span.end_line,
        "endColumn": span.end_column,
    }


def _artifact(file: str) -> Json:
    """A URI relative to the working directory where `file` lies below it, else absolute (3.4.3)."""
    path = Path(file)
    if path.is_absolute():
        try:
            path = path.relative_to(Path.cwd())
        except ValueError:
            return {"uri": path.as_uri()}
    return {"uri": quote(path.as_posix())}


def _spans(diagnostic: Diagnostic) -> Iterable[Span]:
    if diagnostic.span:
        yield diagnostic.span
    yield from (label.span for label in diagnostic.labels)


def _real(span: Span) -> bool:
    return not span.is_virtual


def _virtual(span: Span) -> str:
    return f"{span.file}:{span.line}:{span.column}"
