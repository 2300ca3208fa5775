"""The canonical form of a plan file: what `planc fmt` writes."""

import json
import re
from collections.abc import Iterable, Iterator

from planc.diagnostics.diagnostic import Diagnostic
from planc.syntax.comments import CommentMap, Element, Notes, Place, start_of, trimmed
from planc.syntax.expressions import parse_requirement
from planc.syntax.fields import FIELDS, PLANS
from planc.syntax.keys import parse_key
from planc.syntax.nodes import Mapping, Node, Scalar, Sequence, compose
from planc.syntax.parser import is_bare, parse_text
from planc.syntax.source import SourceText, with_line_feeds
from planc.syntax.style_uses import parse_style
from planc.syntax.wording import double_quoted

INDENT = "  "
_CERTAINLY_PLAIN = re.compile(r"[A-Za-z_][\w.*-]*")
_NOT_TEXT = frozenset({"null", "true", "false"})


def format_text(text: str, file: str) -> tuple[str | None, list[Diagnostic]]:
    """`text` in canonical form, or None and what is wrong with it.

    Fields stand in the order of `fields.FIELDS`; rules keep theirs, for later ones win. Block style, two spaces, no
    more quotes than needed, comments where they were. A JSON file stays JSON. The meaning never changes, and
    formatting the result again changes nothing. The plan that `extends` names isn't read.
    """
    _, found = parse_text(text, file, extend=False)
    source = SourceText(file, with_line_feeds(text))
    root, _ = compose(source)
    if found or not isinstance(root, Mapping):
        return None, found
    return _as_json(source.text) or _as_yaml(source, root), []


def _as_json(text: str) -> str | None:
    try:
        fields = json.loads(text)
    except ValueError:
        return None
    ordered = {name: fields[name] for name in sorted(fields, key=_rank)}
    return json.dumps(ordered, indent=2, ensure_ascii=False) + "\n"


def _rank(field: str) -> int:
    return FIELDS.index(field) if field in FIELDS else len(FIELDS)


def _as_yaml(source: SourceText, root: Mapping) -> str:
    elements = sorted(_elements(root), key=lambda element: element.start)
    comments = CommentMap(source, root, elements)
    writer = _Writer({element.start: notes for element, notes in zip(elements, comments.notes, strict=True)})
    if not root.entries:
        body = ["{}"]
    elif is_bare(root):
        body = [line for key, style in root.entries for line in writer.rule(key, style, "")]
    else:
        entries = sorted(root.entries, key=lambda entry: _rank(entry[0].value))
        body = [line for key, value in entries for line in writer.field(key, value)]
    lines = [*comments.header, "", *trimmed(body), "", *comments.footer]
    single_blanks = [line for line, above in zip(lines, ["", *lines], strict=False) if line or above]
    return "\n".join(trimmed(single_blanks)) + "\n"


def _elements(root: Mapping) -> Iterator[Element]:
    for key, value in root.entries:
        yield Element(start_of(key.span), at_top=True)
        inner = [key.span for key, _ in value.entries] if isinstance(value, Mapping) else []
        inner += [item.span for item in value.items] if isinstance(value, Sequence) else []
        yield from (Element(start_of(span), at_top=False) for span in inner)


class _Writer:
    """Writes elements with the comments that belong to them."""

    def __init__(self, notes: dict[Place, Notes]) -> None:
        self.notes = notes

    def field(self, key: Scalar, value: Node) -> Iterator[str]:
        if isinstance(value, Mapping) and value.entries:
            inner = [line for entry in value.entries for line in self.rule(*entry, INDENT)]
            yield from self._element(key, f"{key.value}:", "", inner)
        elif isinstance(value, Sequence) and value.items:
            inner = [line for item in value.items for line in self._item(item)]
            yield from self._element(key, f"{key.value}:", "", inner)
        else:
            yield from self._element(key, f"{key.value}: {_field_value(key, value)}", "", [])

    def rule(self, key: Scalar, style: Node, indent: str) -> Iterator[str]:
        parsed, use = parse_key(key), parse_style(style) if isinstance(style, Scalar) else None
        assert not isinstance(parsed, Diagnostic) and use is not None and not isinstance(use, Diagnostic)
        text = f"{_written(parsed.text, '{}: x')}: {_written(use.text, 'x: {}')}"
        yield from self._element(key, text, indent, [])

    def _item(self, item: Node) -> Iterator[str]:
        parsed = parse_requirement(item) if isinstance(item, Scalar) else None
        assert parsed is not None and not isinstance(parsed, Diagnostic)
        yield from self._element(item, f"- {_written(parsed.text, '- {}')}", INDENT, [])

    def _element(self, node: Node, text: str, indent: str, inner: Iterable[str]) -> Iterator[str]:
        notes = self.notes[start_of(node.span)]
        yield from _indented(notes.above, indent)
        yield f"{indent}{text}{'  ' if notes.beside else ''}{' '.join(notes.beside)}"
        yield from inner
        yield from _indented(notes.below, indent or INDENT)


def _indented(lines: Iterable[str], indent: str) -> Iterator[str]:
    return (f"{indent}{line}" if line else "" for line in lines)


def _field_value(key: Scalar, value: Node) -> str:
    if not isinstance(value, Scalar):
        return "{}" if isinstance(value, Mapping) else "[]"
    if value.kind == "null":
        return "null"
    if key.value == "require":
        parsed = parse_requirement(value)
        assert not isinstance(parsed, Diagnostic)
        return _written(parsed.text, "x: {}")
    if value.kind == "string" and key.value not in PLANS:
        return _written(value.value, "x: {}")
    return value.value.lower()


def _written(text: str, place: str) -> str:
    """`text` as YAML at `place`, plain if it then reads as this text, else in quotes."""
    if _CERTAINLY_PLAIN.fullmatch(text) and text.lower() not in _NOT_TEXT:
        return text
    if text.isprintable() and _reads_as(text, text, place):
        return text
    if text.isprintable() and ('"' in text or "\\" in text):
        return "'" + text.replace("'", "''") + "'"
    return double_quoted(text)


def _reads_as(written: str, text: str, place: str) -> bool:
    root, found = compose(SourceText("", place.format(written) + "\n"))
    if found or root is None:
        return False
    if isinstance(root, Sequence):
        (scalar,) = root.items
    elif isinstance(root, Mapping):
        ((key, value),) = root.entries
        scalar = key if place.startswith("{}") else value
    return isinstance(scalar, Scalar) and scalar.value == text and scalar.kind == "string"
