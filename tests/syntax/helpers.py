"""What the tests of the syntax share."""

import dataclasses
from typing import Any

from planc.diagnostics.span import Span
from planc.syntax.keys import parse_key_by_grammar
from planc.syntax.nodes import Scalar
from planc.syntax.plan import Key
from planc.syntax.source import SourceText


def scalar(text: str) -> Scalar:
    """`text` as a value that a file consists of."""
    source = SourceText("test", text)
    return Scalar(text, "string", source, source.span(0, len(text)), 0)


def key(text: str) -> Key:
    parsed = parse_key_by_grammar(scalar(text))
    assert isinstance(parsed, Key), parsed
    return parsed


def without_places(value: Any) -> Any:
    """`value` with all spans equal and without texts and file names: what it means, wherever it stands."""
    if isinstance(value, Span):
        return None
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [f.name for f in dataclasses.fields(value) if f.name not in ("sources", "file")]
        return (type(value).__name__, *((name, without_places(getattr(value, name))) for name in names))
    if isinstance(value, dict):
        return {name: without_places(item) for name, item in value.items()}
    if isinstance(value, tuple):
        return tuple(map(without_places, value))
    return value
