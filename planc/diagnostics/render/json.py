"""Findings for programs: stable, versioned JSON.

One plan is one object. Several plans are `{"format_version": 1, "ok": …, "reports": […]}`, each of the reports the
object that the plan alone would have given. Fields may be added within a format version; none changes or goes.
"""

import json
from collections.abc import Sequence
from typing import Any

from planc.diagnostics.codes import CODES
from planc.diagnostics.diagnostic import Coverage, Diagnostic, Fix, Report
from planc.diagnostics.render.screen import Screen
from planc.diagnostics.span import Span

FORMAT_VERSION = 1


def render(reports: Sequence[Report], screen: Screen) -> str:
    """ASCII JSON, so that it is the same on every terminal."""
    documents = [report_to_json(report) for report in reports]
    document = documents[0] if len(documents) == 1 else _several(documents)
    return json.dumps(document, indent=2) + "\n"


def report_to_json(report: Report) -> dict[str, Any]:
    """The report of one plan, as docs/output.md describes it."""
    return {
        "format_version": FORMAT_VERSION,
        "ok": report.ok,
        "plan": report.plan_file,
        "model": {"name": report.model_name, "class": report.model_class},
        "layout": dict(report.layout),
        "diagnostics": [_diagnostic(d) for d in report.diagnostics],
        "coverage": _coverage(report.coverage),
    }


def _several(documents: list[dict[str, Any]]) -> dict[str, Any]:
    return {"format_version": FORMAT_VERSION, "ok": all(d["ok"] for d in documents), "reports": documents}


def _diagnostic(diagnostic: Diagnostic) -> dict[str, Any]:
    code = CODES.get(diagnostic.code)
    return {
        "code": diagnostic.code,
        "name": code.name if code else "",
        "severity": diagnostic.severity.value,
        "message": diagnostic.message,
        **_place(diagnostic.span),
        "label": diagnostic.label,
        "labels": [{**_place(label.span), "message": label.text} for label in diagnostic.labels],
        "key": diagnostic.key,
        "targets": list(diagnostic.targets),
        "target_count": max(diagnostic.target_count, len(diagnostic.targets)),
        "notes": list(diagnostic.notes),
        "help": "\n".join(diagnostic.help),
        "fix": _fix(diagnostic.fix) if diagnostic.fix else None,
    }


def _place(span: Span | None) -> dict[str, Any]:
    """Where a finding stands; every field is null for one that has no place."""
    return {
        "file": span.file if span else None,
        "line": span.line if span else None,
        "column": span.column if span else None,
        "end_line": span.end_line if span else None,
        "end_column": span.end_column if span else None,
    }


def _fix(fix: Fix) -> dict[str, Any]:
    edits = [{**_place(edit.span), "replacement": edit.replacement} for edit in fix.edits]
    return {"safe": fix.safe, "message": fix.message, "edits": edits}


def _coverage(coverage: Coverage) -> dict[str, Any]:
    return {
        "parameters": coverage.parameters,
        "sharded": coverage.sharded,
        "bytes_total": coverage.bytes_total,
        "bytes_per_rank": coverage.bytes_per_rank,
        "bytes_even": coverage.bytes_even,
        "replicated": [{"name": item.name, "bytes": item.bytes} for item in coverage.replicated],
    }
