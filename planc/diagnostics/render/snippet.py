"""Quoting source lines with carets under the tokens of a finding."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from planc.diagnostics.render.screen import TAB, Screen, cells, wrap

# A quoted line is cut around its carets where it is longer than this on a pipe, or than the terminal.
PIPE_WIDTH = 200
NARROWEST = 24


@dataclass(frozen=True, slots=True)
class Mark:
    """Columns `[start, end)` of one line, counted from 1 in code points, and what stands under them."""

    start: int
    end: int
    text: str
    role: str

    @property
    def caret(self) -> str:
        return "-" if self.role == "secondary" else "^"


@dataclass(frozen=True, slots=True)
class _Placed:
    """A mark in terminal cells of the quoted line, `[left, right)`."""

    left: int
    right: int
    mark: Mark


class SourceLine:
    """One line of source as it is shown: tabs expanded, dangerous characters escaped, cut around its marks."""

    def __init__(self, text: str, marks: Iterable[Mark], screen: Screen, gutter: int) -> None:
        self.screen = screen
        self.room = (screen.width or PIPE_WIDTH + gutter) - gutter
        room = max(self.room, NARROWEST)
        marks = [_clip(mark, 0, len(text)) for mark in marks]
        begin, end = _neighbourhood(text, marks, room)
        shown = _glyphs(text[begin:end], screen)
        marks = [_clip(mark, begin, end) for mark in marks]
        first, last = _window(shown, marks, room, len(screen.ellipsis))
        head = screen.ellipsis if begin + first else ""
        self.text = head + "".join(shown[first:last]) + (screen.ellipsis if begin + last < len(text) else "")
        self.placed = sorted(
            (_place(mark, shown, first, last, len(head)) for mark in marks),
            key=lambda p: (p.left, p.mark.role != "secondary", p.right),
        )

    def rows(self) -> Iterator[str]:
        """The quoted line, its carets, and the labels that don't fit beside them."""
        yield self.text.rstrip()
        if not self.placed:
            return
        beside, hung = self._split()
        yield from self._carets(beside).split("\n")
        while hung:
            yield self._bars(hung)
            lowest = hung.pop()
            yield from self._hang(lowest, hung).split("\n")

    def _split(self) -> tuple[_Placed | None, list[_Placed]]:
        """The mark whose label stands beside the carets, and those whose labels hang below, leftmost first."""
        labelled = [p for p in self.placed if p.mark.text]
        if not labelled:
            return None, []
        rightmost = labelled[-1]
        if self._room_beside() >= min(NARROWEST, cells(self.screen.show(rightmost.mark.text))):
            return rightmost, labelled[:-1]
        return None, labelled

    def _edge(self) -> int:
        return max(p.right for p in self.placed)

    def _room_beside(self) -> int:
        return self.room - self._edge() - 1 if self.screen.width else PIPE_WIDTH

    def _carets(self, beside: _Placed | None) -> str:
        roles = [""] * self._edge()
        carets = [" "] * self._edge()
        for placed in sorted(self.placed, key=lambda p: p.mark.role != "secondary"):
            for cell in range(placed.left, placed.right):
                carets[cell], roles[cell] = placed.mark.caret, placed.mark.role
        row = _painted(carets, roles, self.screen)
        if beside is None:
            return row
        return row + " " + self._label(beside.mark, self._room_beside(), self._edge() + 1)

    def _label(self, mark: Mark, room: int, indent: int) -> str:
        """The label of `mark`; further lines of it start at cell `indent`."""
        lines = wrap(self.screen.show(mark.text), room if self.screen.width else None)
        return f"\n{' ' * indent}".join(self.screen.paint(line, mark.role) for line in lines)

    def _bars(self, hung: list[_Placed]) -> str:
        width = hung[-1].left + 1
        bars, roles = [" "] * width, [""] * width
        for placed in hung:
            bars[placed.left], roles[placed.left] = "|", placed.mark.role
        return _painted(bars, roles, self.screen)

    def _hang(self, lowest: _Placed, above: list[_Placed]) -> str:
        """The label of `lowest` under its bar, with the bars of the marks to its left."""
        left = lowest.left if self.room - lowest.left >= NARROWEST or not self.screen.width else 0
        bars = self._bars(above) if above and left else ""
        filled = min(above[-1].left + 1, left) if above and left else 0
        if above and above[-1].left == left:
            bars, filled = "", 0
        return bars + " " * (left - filled) + self._label(lowest.mark, self.room - left, left)


def _glyphs(text: str, screen: Screen) -> list[str]:
    """What each character of `text` looks like; a tab reaches to the next multiple of `TAB` cells."""
    if text.isascii() and text.isprintable():
        return list(text)
    shown: list[str] = []
    width = 0
    for character in text:
        glyph = " " * (TAB - width % TAB) if character == "\t" else screen.glyph(character)
        shown.append(glyph)
        width += cells(glyph)
    return shown


def _clip(mark: Mark, begin: int, end: int) -> Mark:
    """`mark` as it stands in the characters `[begin, end)` of its line; one may stand just behind their end."""
    start = min(max(mark.start - begin, 1), end - begin + 1)
    stop = min(max(mark.end - begin, start), end - begin + 1)
    return Mark(start, stop, mark.text, mark.role)


def _primary(marks: list[Mark]) -> Mark:
    return next((mark for mark in marks if mark.role != "secondary"), marks[0])


def _neighbourhood(text: str, marks: list[Mark], room: int) -> tuple[int, int]:
    """Characters `[begin, end)` that may be shown, so that a line of a megabyte costs no more than a short one."""
    reach = 4 * room
    if len(text) <= 2 * reach or not marks:
        return 0, min(len(text), 2 * reach)
    begin, end = min(m.start for m in marks), max(m.end for m in marks)
    if end - begin > reach:
        begin, end = _primary(marks).start, _primary(marks).start
    return max(0, begin - reach), min(len(text), end + reach)


def _window(shown: list[str], marks: list[Mark], room: int, ellipsis: int) -> tuple[int, int]:
    """Which characters `[first, last)` of a line to show so that it takes at most `room` cells."""
    widths = [cells(glyph) for glyph in shown]
    if sum(widths) <= room:
        return 0, len(shown)
    room -= 2 * ellipsis
    first = min((m.start - 1 for m in marks), default=0)
    last = max((m.end - 1 for m in marks), default=0)
    if sum(widths[first:last]) > room:
        first, last = _primary(marks).start - 1, _primary(marks).end - 1
    while sum(widths[first:last]) > room:
        last -= 1
    used, before = sum(widths[first:last]), 0
    while first > 0 and before < room // 4 and used + widths[first - 1] <= room:
        first -= 1
        before += widths[first]
        used += widths[first]
    while last < len(shown) and used + widths[last] <= room:
        used += widths[last]
        last += 1
    while first > 0 and used + widths[first - 1] <= room:
        first -= 1
        used += widths[first]
    return first, last


def _place(mark: Mark, shown: list[str], first: int, last: int, head: int) -> _Placed:
    start, end = (min(max(column - 1, first), last) for column in (mark.start, mark.end))
    left = head + cells("".join(shown[first:start]))
    right = head + cells("".join(shown[first:end]))
    return _Placed(left, max(right, left + 1), mark)


def _painted(characters: list[str], roles: list[str], screen: Screen) -> str:
    """`characters` joined, each run of one role painted at once."""
    text, start = "", 0
    for stop in range(1, len(characters) + 1):
        if stop == len(characters) or roles[stop] != roles[start]:
            text += screen.paint("".join(characters[start:stop]), roles[start])
            start = stop
    return text
