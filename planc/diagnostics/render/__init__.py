"""Output formats, one a file. None of them is imported before it is used."""

from collections.abc import Sequence
from importlib import import_module

from planc.diagnostics.diagnostic import Report
from planc.diagnostics.render.screen import Screen

FORMATS = ("text", "concise", "json", "sarif", "github")


def render(name: str, reports: Sequence[Report], screen: Screen | None = None) -> str:
    """`reports` in the format `name` (one of `FORMATS`), ending in a newline unless empty.

    Raises `KeyError` for any other name.
    """
    if name not in FORMATS:
        raise KeyError(name)
    text: str = import_module(f"planc.diagnostics.render.{name}").render(reports, screen or Screen())
    return text
