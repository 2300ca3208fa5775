"""Where text goes: how wide it is, whether it has colours, and which characters it can show."""

import os
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TextIO

TAB = 4
# How `click.style` paints each part of a finding.
ROLES: Mapping[str, Mapping[str, str | bool]] = {
    "error": {"fg": "red", "bold": True},
    "warning": {"fg": "yellow", "bold": True},
    "unknown": {"fg": "magenta", "bold": True},
    "note": {"fg": "cyan", "bold": True},
    "secondary": {"fg": "blue", "bold": True},
    "gutter": {"fg": "blue", "bold": True},
    "strong": {"bold": True},
    "added": {"fg": "green"},
    "removed": {"fg": "red"},
}


@dataclass(frozen=True, slots=True)
class Screen:
    """A terminal (`width` in cells) or, with `width` None, a pipe or a file."""

    width: int | None = None
    colour: bool = False
    encoding: str = "utf-8"

    @classmethod
    def of(cls, stream: TextIO, environ: Mapping[str, str] = os.environ) -> "Screen":
        """What `stream` can show. `NO_COLOR` beats `FORCE_COLOR`, as no-color.org asks; `COLUMNS` sets the width."""
        terminal = stream.isatty()
        wanted = bool(environ.get("FORCE_COLOR")) or (terminal and environ.get("TERM") != "dumb")
        return cls(
            width=_terminal_width() if terminal else None,
            colour=wanted and not environ.get("NO_COLOR"),
            encoding=getattr(stream, "encoding", None) or "utf-8",
        )

    def paint(self, text: str, role: str) -> str:
        """`text` in the colours of `role`, where there are colours."""
        if not self.colour or not text or role not in ROLES:
            return text
        import click

        return click.style(text, **ROLES[role])  # type: ignore[arg-type]

    def glyph(self, character: str) -> str:
        """`character`, or an escape where it can't be encoded or would steer the terminal or turn the text around."""
        if character.isascii() and character.isprintable():
            return character
        if unicodedata.category(character) in {"Cc", "Cs", "Co", "Cn", "Zl", "Zp"} or _turns_text(character):
            return _escape(character)
        try:
            character.encode(self.encoding)
        except (UnicodeEncodeError, LookupError):
            return _escape(character)
        return character

    def show(self, text: str) -> str:
        """`text` on one line, with nothing in it that this screen can't show."""
        if text.isascii() and text.isprintable():
            return text
        return "".join(self.glyph(c) for c in " ".join(text.splitlines()).replace("\t", " "))

    @property
    def ellipsis(self) -> str:
        return "…" if self.glyph("…") == "…" else "..."


def _terminal_width() -> int:
    from shutil import get_terminal_size  # pulls in the compression libraries

    return get_terminal_size().columns


def _turns_text(character: str) -> bool:
    """Whether `character` embeds, overrides or isolates a writing direction (CVE-2021-42574)."""
    return unicodedata.bidirectional(character) in {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


def _escape(character: str) -> str:
    if character.isascii():  # a control character: `backslashreplace` leaves it as it is
        return f"\\x{ord(character):02x}"
    return character.encode("ascii", "backslashreplace").decode()


def cells(text: str) -> int:
    """How many terminal cells `text` takes: East Asian wide characters two, combining ones none."""
    # Everything below U+0300 takes one cell, and rich costs more than a plain report.
    if text.isascii() or max(text) < "\u0300":
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def wrap(text: str, width: int | None) -> list[str]:
    """`text` as lines of at most `width` cells, broken at spaces only; longer words stay whole."""
    if width is None or cells(text) <= width:
        return [text]
    lines: list[str] = []
    line = ""
    for word in text.split(" "):
        longer = f"{line} {word}" if line else word
        if line and cells(longer) > width:
            lines.append(line)
            longer = word
        line = longer
    return [*lines, line]
