"""Applying fixes to texts."""

from collections.abc import Iterable
from itertools import accumulate

from planc.diagnostics.diagnostic import Edit


def apply_edits(text: str, edits: Iterable[Edit]) -> str:
    """`text` with `edits` applied, all given in positions of the unedited text.

    Raises `ValueError` when two of them overlap or one lies outside of the text.
    """
    starts = [0, *accumulate(len(line) + 1 for line in text.split("\n")[:-1])]
    edited = text
    limit = len(text)
    for edit in sorted(edits, key=lambda e: e.span, reverse=True):
        span = edit.span
        if not 1 <= span.line <= span.end_line <= len(starts):
            raise ValueError(f"{span.file}:{span.line}:{span.column}: outside of the text")
        start = starts[span.line - 1] + span.column - 1
        end = starts[span.end_line - 1] + span.end_column - 1
        if not start <= end <= limit:
            raise ValueError(f"{span.file}:{span.line}:{span.column}: outside of the text, or edits overlap")
        edited = edited[:start] + edit.replacement + edited[end:]
        limit = start
    return edited
