"""YAML 1.2 as a tree with exact positions.

ruamel.yaml scans and parses; composing is ours, because ruamel's composer recurses as deep as the file does, keeps no
order of duplicate keys and expands aliases. The subset is that of a plan: one document, no tags, no directives but
`%YAML 1.2`, no merge keys, and aliases of scalars only, so that nothing can grow beyond the text.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)
from ruamel.yaml.reader import ReaderError

from planc.diagnostics.diagnostic import Diagnostic, Label
from planc.diagnostics.span import Span
from planc.syntax import codes
from planc.syntax.limits import MAX_DEPTH, MAX_FINDINGS, MAX_NODES
from planc.syntax.source import SourceText
from planc.syntax.wording import shown
from planc.syntax.yaml_errors import broken_yaml, unprintable

ScalarKind = Literal["string", "integer", "float", "boolean", "null"]

# The core schema of YAML 1.2.2, section 10.3.2.
_CORE_SCHEMA: tuple[tuple[ScalarKind, re.Pattern[str]], ...] = (
    ("null", re.compile(r"null|Null|NULL|~|")),
    ("boolean", re.compile(r"true|True|TRUE|false|False|FALSE")),
    ("integer", re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")),
    ("float", re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")),
)
# White space behind an indicator, in front of a comment, or alone on its line.
_INNER_TAB = re.compile(r"(?<=[:?-])[\t ]+|[\t ]+(?=#)|^[\t ]+$", re.MULTILINE)
_COLON = re.compile(r"\s*:")
_ANCHOR = re.compile(r"&\S+\s*")
_BEFORE_TAG = re.compile(r"\s*(?:&\S+\s+)?(?=!)")
_HALVES = re.compile("[\ud800-\udfff]")
# Line ends of YAML 1.1, and of ruamel.yaml in every version; in YAML 1.2 (1.2.2, section 5.4) they are ordinary.
_FORMER_LINE_ENDS = "\x85\u2028\u2029"
_PRIVATE_USE = range(0xE000, 0xF900)
# The directives at the head of a document, between comments and blank lines.
_HEAD = re.compile(r"(?:[ \t]*(?:#.*)?\n)*(%.*)")
_DOCUMENT_START = re.compile(r"^---(?:\s|$)", re.MULTILINE)


@dataclass(frozen=True)
class Scalar:
    """A value; `start` is the offset of its first character, inside the quotes, or None when `value` isn't verbatim."""

    value: str
    kind: ScalarKind
    source: SourceText
    span: Span
    start: int | None
    is_block: bool = False

    def inner(self, start: int = 0, end: int | None = None) -> Span:
        """The span of `value[start:end]`; of the whole scalar when the text spells it otherwise (escapes, folds)."""
        if self.start is None:
            return self.span
        return self.source.span(self.start + start, self.start + (len(self.value) if end is None else end))


@dataclass(frozen=True)
class Sequence:
    items: tuple["Node", ...]
    span: Span


@dataclass(frozen=True)
class Mapping:
    """Entries in the order of the text; of a duplicate key only the last is here."""

    entries: tuple[tuple[Scalar, "Node"], ...]
    span: Span


Node = Scalar | Sequence | Mapping


def covering(first: Span, last: Span) -> Span:
    """From the start of `first` to the end of `last`."""
    return Span(first.file, first.line, first.column, last.end_line, last.end_column)


class _StopError(Exception):
    """Nothing after this finding can be read."""

    def __init__(self, diagnostic: Diagnostic) -> None:
        self.diagnostic = diagnostic


def compose(source: SourceText) -> tuple[Node | None, list[Diagnostic]]:
    """The only document of `source`, and what is wrong with it. None when it is empty or can't be read."""
    root, found = _compose(source, source.text)
    if root is None and "\t" in source.text:
        # YAML allows tabs between tokens, ruamel.yaml doesn't; only those that indent are errors.
        return _compose(source, _INNER_TAB.sub(lambda tabs: " " * len(tabs[0]), source.text))
    return root, found


def _compose(source: SourceText, text: str) -> tuple[Node | None, list[Diagnostic]]:
    """`compose` for `text`, the same as that of `source` but for kinds of white space."""
    composer = _Composer(source, text)
    try:
        return composer.document(), composer.diagnostics
    except _StopError as stop:
        return None, [*composer.diagnostics, stop.diagnostic]
    except ReaderError as error:
        return None, [*composer.diagnostics, unprintable(error, source)]
    except MarkedYAMLError as error:
        return None, [*composer.diagnostics, broken_yaml(error, source)]


class _Composer:
    def __init__(self, source: SourceText, text: str) -> None:
        self.source = source
        self.text = text
        self.diagnostics: list[Diagnostic] = []
        self.anchors: dict[str, Scalar | None] = {}
        self.count = 0
        self.events: Iterator[Any] = iter(())
        self._stand_ins = _stand_ins(text)

    def document(self) -> Node | None:
        self._check_head()
        text = self.text.translate({ord(end): stand_in for stand_in, end in self._stand_ins.items()})
        self.events = iter(YAML(typ="safe", pure=True).parse(text))
        next(self.events)  # the start of the stream
        start = next(self.events)
        if not isinstance(start, DocumentStartEvent):
            return None
        self._check_directives(start)
        root = self._node(next(self.events), 1)
        next(self.events)  # the end of the document
        following = next(self.events)
        if isinstance(following, DocumentStartEvent):
            span = self.source.span(following.start_mark.index, following.end_mark.index)
            raise _StopError(
                codes.SeveralDocuments.code.found(
                    "a plan file holds one document",
                    span=span,
                    label="a second one starts here",
                    help=("give each plan a file of its own",),
                )
            )
        return root

    def _check_head(self) -> None:
        """Refuse a `%YAML` that ruamel.yaml doesn't know: it raises an AssertionError on some versions."""
        head = _HEAD.match(self.text)
        if (
            head
            and _DOCUMENT_START.search(self.text, head.end())
            and not re.match(r"%YAML[ \t]+1\.2\s*(#.*)?$", head[1])
        ):
            raise self._directive(*head.span(1))

    def _check_directives(self, event: Any) -> None:
        if event.tags or (event.version and tuple(event.version) != (1, 2)):
            line = re.search("^%.*", self.source.text, re.MULTILINE)
            raise self._directive(*line.span()) if line else self._directive(0, 0)

    def _directive(self, start: int, end: int) -> _StopError:
        return _StopError(
            codes.UnsupportedYaml.code.found(
                "plans are YAML 1.2 without directives",
                span=self.source.span(start, end),
                help=("remove the lines that start with `%`",),
            )
        )

    def _add(self, found: Diagnostic) -> None:
        self.diagnostics.append(found)
        if len(self.diagnostics) == MAX_FINDINGS:
            message = f"{MAX_FINDINGS} findings; the rest of the file was not read"
            raise _StopError(codes.TooManyFindings.code.found(message, span=found.span))

    def _span(self, event: Any) -> Span:
        return self.source.span(event.start_mark.index, event.end_mark.index)

    def _refuse(self, event: Any, message: str, *help_: str, label: str = "") -> _StopError:
        return _StopError(
            codes.UnsupportedYaml.code.found(message, span=self._span(event), label=label, help=tuple(help_))
        )

    def _node(self, event: Any, depth: int) -> Node:
        self.count += 1
        if self.count > MAX_NODES:
            raise self._too_large(event, f"more than {MAX_NODES:,} keys and values")
        if isinstance(event, AliasEvent):
            return self._aliased(event)
        if event.tag is not None:
            raise self._tagged(event)
        if depth > MAX_DEPTH:
            raise self._too_large(event, f"nested more than {MAX_DEPTH} levels deep")
        if isinstance(event, ScalarEvent):
            return self._scalar(event)
        if event.anchor is not None:
            self.anchors[event.anchor] = None
        return self._sequence(event, depth) if isinstance(event, SequenceStartEvent) else self._mapping(event, depth)

    def _too_large(self, event: Any, message: str) -> _StopError:
        return _StopError(codes.TooLarge.code.found(message, span=self._span(event), label="reading stopped here"))

    def _tagged(self, event: Any) -> _StopError:
        # An anchor may stand before the tag; an empty value that has both begins behind them.
        behind = _BEFORE_TAG.match(self.source.text, event.start_mark.index)
        start = behind.end() if behind else self.source.text.rfind("!", 0, event.start_mark.index)
        if start < 0:  # an anchor with a character that only YAML 1.1 takes for a line's end
            start = self.source.text.index("!", event.start_mark.index)
        while not behind and start and self.source.text[start - 1] in "!<":
            start -= 1
        tag = self.source.text[start:].split(maxsplit=1)[0]
        return _StopError(
            codes.UnsupportedYaml.code.found(
                f"the tag {shown(tag)} has no place in a plan",
                span=self.source.span(start, start + len(tag)),
                help=("remove it: a plan is plain text and numbers",),
            )
        )

    def _aliased(self, event: Any) -> Scalar:
        anchored = self.anchors.get(event.anchor)
        if anchored is not None:
            return replace(anchored, span=self._span(event), start=None, is_block=False)
        if event.anchor in self.anchors:
            raise self._refuse(
                event,
                f"{shown('*' + event.anchor)} repeats a whole mapping or list, and plans don't expand those",
                "write the rules out, or put them into a file of their own and name it under `extends`",
            )
        raise self._refuse(
            event,
            f"{shown('*' + event.anchor.rstrip(':'))} is a YAML alias of an anchor that doesn't exist",
            "put quotes around a key or value that starts with `*`",
            label="no `&` of this name above",
        )

    def _scalar(self, event: Any) -> Scalar:
        text, first, last = self.source.text, event.start_mark.index, event.end_mark.index
        if event.anchor is not None and (anchor := _ANCHOR.match(text, first)):
            first = min(anchor.end(), last)  # an empty value ends with its anchor
        value = self._joined(event)
        inner = first + 1 if event.style in ("'", '"') else first
        verbatim = text.startswith(value, inner) and last - inner == len(value) + (inner - first)
        scalar = Scalar(
            value,
            _kind(value) if event.style is None else "string",
            self.source,
            self.source.span(first, last),
            inner if verbatim else None,
            is_block=event.style in ("|", ">"),
        )
        if event.anchor is not None:
            self.anchors[event.anchor] = scalar
        return scalar

    def _joined(self, event: Any) -> str:
        """The scalar's text; JSON escapes a character beyond 16 bits as two halves, which belong together."""
        value = str(event.value)
        if self._stand_ins:
            value = value.translate({ord(stand_in): end for stand_in, end in self._stand_ins.items()})
        if not _HALVES.search(value):
            return value
        try:
            return value.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            found = codes.NotYaml.code.found("half of a surrogate pair is no character", span=self._span(event))
            raise _StopError(found) from None

    def _sequence(self, start: Any, depth: int) -> Sequence:
        items = []
        while not isinstance(event := next(self.events), SequenceEndEvent):
            items.append(self._node(event, depth + 1))
        return Sequence(tuple(items), self._extent(start, event, items))

    def _mapping(self, start: Any, depth: int) -> Mapping:
        entries: dict[str, tuple[Scalar, Node]] = {}
        first: dict[str, Scalar] = {}
        while not isinstance(event := next(self.events), MappingEndEvent):
            key = self._key(event)
            if key.value in first:
                self._add(_duplicate(first[key.value], key))
                del entries[key.value]
            first.setdefault(key.value, key)
            entries[key.value] = (key, self._value(event, next(self.events), depth + 1))
        return Mapping(tuple(entries.values()), self._extent(start, event, [value for _, value in entries.values()]))

    def _extent(self, start: Any, end: Any, values: list[Node]) -> Span:
        """A block ends with its last value: ruamel.yaml ends it where the next token begins."""
        if start.flow_style or not values:
            return self.source.span(start.start_mark.index, end.end_mark.index)
        return covering(self.source.span(start.start_mark.index, start.start_mark.index), values[-1].span)

    def _value(self, key: Any, event: Any, depth: int) -> Node:
        node = self._node(event, depth)
        if isinstance(node, Scalar) and not node.value and event.start_mark.index == event.end_mark.index:
            # ruamel.yaml puts an absent value where the next token begins.
            colon = _COLON.match(self.source.text, key.end_mark.index)
            after = colon.end() if colon else key.end_mark.index
            return replace(node, span=self.source.span(after, after), start=None)
        return node

    def _key(self, event: Any) -> Scalar:
        if isinstance(event, MappingStartEvent | SequenceStartEvent):
            raise self._refuse(
                event, "a key can't be a mapping or a list", "put quotes around a key that starts with `[` or `{`"
            )
        key = self._node(event, 0)
        assert isinstance(key, Scalar)
        if key.value == "<<" and event.style is None:
            raise self._refuse(
                event, "YAML 1.2 has no merge keys", "put the shared rules into a file and name it under `extends`"
            )
        return key


def _stand_ins(text: str) -> dict[str, str]:
    """A character that `text` holds nowhere, not even escaped, for each former line end in it; empty for most texts."""
    ends = [end for end in _FORMER_LINE_ENDS if end in text]
    if not ends:
        return {}
    folded = text.lower()
    free = (chr(code) for code in _PRIVATE_USE if chr(code) not in text and f"{code:x}" not in folded)
    return dict(zip(free, ends, strict=False))


def _kind(plain: str) -> ScalarKind:
    return next((kind for kind, pattern in _CORE_SCHEMA if pattern.fullmatch(plain)), "string")


def _duplicate(first: Scalar, second: Scalar) -> Diagnostic:
    return codes.DuplicateKey.code.found(
        f"{shown(second.value)} is given twice",
        span=second.span,
        label="again here",
        labels=(Label(first.span, "first here"),),
        help=("keep one of them",),
    )
