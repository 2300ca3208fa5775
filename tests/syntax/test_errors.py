"""Every faulty plan of `err/` gives exactly the findings in the `.out` beside it.

`PLANC_UPDATE=1 pytest tests/syntax/test_errors.py` writes the `.out` files anew; read the difference before keeping it.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from planc.diagnostics.diagnostic import Diagnostic, Severity
from planc.diagnostics.span import Span
from planc.syntax.parser import parse_plan

ERR = Path(__file__).parent / "err"


def place(span: Span | None) -> str:
    assert span is not None
    name = os.path.basename(span.file)
    end = f"{span.end_line}:" if span.end_line != span.line else ""
    return f"{name}:{span.line}:{span.column}-{end}{span.end_column}"


def lines(found: Diagnostic) -> Iterator[str]:
    yield f"{found.code} {place(found.span)} {found.message}"
    if found.label:
        yield f"    label: {found.label}"
    for label in found.labels:
        yield f"    at {place(label.span)}: {label.text}"
    for help_ in found.help:
        yield f"    help: {help_}"
    if found.fix:
        edits = ", ".join(f"{place(edit.span)} {edit.replacement!r}" for edit in found.fix.edits)
        yield f"    fix{' (safe)' if found.fix.safe else ''}: {edits}"


@pytest.mark.parametrize("path", sorted(ERR.glob("*.yaml")), ids=lambda path: path.stem)
def test_findings(path: Path) -> None:
    _, found = parse_plan(path)
    assert found
    assert all(f.severity is Severity.ERROR for f in found)
    text = "".join(f"{line}\n" for f in found for line in lines(f))
    expected = path.with_suffix(".out")
    if os.environ.get("PLANC_UPDATE"):
        expected.write_text(text)
    assert text == expected.read_text()


def test_no_output_is_left_over() -> None:
    assert {p.stem for p in ERR.glob("*.out")} == {p.stem for p in ERR.glob("*.yaml")}
