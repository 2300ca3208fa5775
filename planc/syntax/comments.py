"""The comments of a YAML text, and which element each belongs to."""

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field

from planc.diagnostics.span import Span
from planc.syntax.nodes import Mapping, Node, Scalar, Sequence
from planc.syntax.source import SourceText

Place = tuple[int, int]
_END_OF_LINE = 1 << 30


@dataclass
class Notes:
    """What an author wrote around an element: lines above it (`""` is a blank line), beside it, and below it."""

    above: list[str] = field(default_factory=list)
    beside: list[str] = field(default_factory=list)
    below: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Element:
    """A field, a rule or a list item: where it starts, and whether it is a field of the file itself."""

    start: Place
    at_top: bool


class CommentMap:
    """Gives every comment of a text to one of its elements.

    A comment beside an element belongs to the last one that starts before it. One on a line of its own belongs to the
    element that follows; an indented one that ends a block belongs to the element above. Lines above the first
    element, up to the last blank line there, are the file's `header`; those below the last one its `footer`.
    """

    def __init__(self, source: SourceText, root: Mapping, elements: list[Element]) -> None:
        self.notes = [Notes() for _ in elements]
        self.header: list[str] = []
        self.footer: list[str] = []
        self._elements = elements
        self._starts = [element.start for element in elements]
        self._quiet = sorted(_quiet_regions(root))
        self._waiting: list[str] = []
        self._settled = 0
        for number, line in enumerate(source.text.split("\n"), start=1):
            self._settle(number)
            self._read(number, line)
        self.footer = trimmed(self._waiting)

    def _settle(self, number: int) -> None:
        """The lines that wait go above the first element of line `number`, if one starts there."""
        until = bisect_right(self._starts, (number, _END_OF_LINE))
        if until == self._settled:
            return
        if self._settled == 0:
            blank = len(self._waiting) - self._waiting[::-1].index("") if "" in self._waiting else 0
            self.header, self._waiting = trimmed(self._waiting[:blank]), self._waiting[blank:]
        self.notes[self._settled].above += self._waiting
        self._waiting = []
        self._settled = until

    def _read(self, number: int, line: str) -> None:
        column = self._comment_column(number, line)
        if column is None:
            if not line.strip():
                self._waiting.append("")
            return
        text, before = line[column - 1 :].rstrip(), bisect_right(self._starts, (number, column)) - 1
        if before >= 0 and line[: column - 1].strip(" -?:{}[],"):
            self.notes[before].beside.append(text)
        elif before >= 0 and column > 1 and self._ends_block(before):
            self.notes[before].below += [*trimmed(self._waiting), text]
            self._waiting = []
        else:
            self._waiting.append(text)

    def _ends_block(self, index: int) -> bool:
        return index + 1 == len(self._elements) or self._elements[index + 1].at_top

    def _comment_column(self, number: int, line: str) -> int | None:
        """The column at which a comment starts: at a `#` that begins a word, outside of every scalar."""
        for found in re.finditer(r"(?:^|(?<=\s))#", line):
            place = (number, found.start() + 1)
            before = bisect_right(self._quiet, (place, (_END_OF_LINE, 0))) - 1
            if before < 0 or place >= self._quiet[before][1]:
                return found.start() + 1
        return None


def trimmed(lines: list[str]) -> list[str]:
    """`lines` without blank ones at either end."""
    text = "\n".join(lines).strip("\n")
    return text.split("\n") if text else []


def _quiet_regions(node: Node) -> Iterator[tuple[Place, Place]]:
    """Where a `#` starts no comment: inside scalars."""
    if isinstance(node, Scalar):
        yield _region(node)
    elif isinstance(node, Sequence):
        for item in node.items:
            yield from _quiet_regions(item)
    else:
        for key, value in node.entries:
            yield _region(key)
            yield from _quiet_regions(value)


def _region(scalar: Scalar) -> tuple[Place, Place]:
    span = scalar.span
    start = (span.line + 1, 1) if scalar.is_block else (span.line, span.column)
    return start, (span.end_line, span.end_column)


def start_of(span: Span) -> Place:
    return span.line, span.column
