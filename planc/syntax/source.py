"""A source text and its lines: turns offsets into spans, and files into texts."""

import os
import stat
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from planc.diagnostics.span import Span
from planc.syntax.limits import MAX_BYTES


class UnreadableError(Exception):
    """A file that can't be a plan, with the reason in words."""


@dataclass(frozen=True)
class SourceText:
    """A text with line feeds only (see `read_source`); offsets count code points from 0."""

    file: str
    text: str

    @cached_property
    def _line_starts(self) -> list[int]:
        return [0, *accumulate(len(line) + 1 for line in self.text.split("\n")[:-1])]

    def span(self, start: int, end: int) -> Span:
        """The span of `text[start:end]`."""
        line, column = self._place(start)
        end_line, end_column = self._place(end)
        return Span(self.file, line, column, end_line, end_column)

    def _place(self, offset: int) -> tuple[int, int]:
        line = bisect_right(self._line_starts, offset)
        return line, offset - self._line_starts[line - 1] + 1


def with_line_feeds(text: str) -> str:
    """`text` without a byte order mark and with `\\n` as its only line end, so that columns don't depend on either."""
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def read_source(path: str) -> SourceText:
    """The text of the file at `path`.

    Raises `UnreadableError` when it isn't a regular file, is larger than `MAX_BYTES`, or isn't UTF-8 text.
    """
    return SourceText(path, with_line_feeds(_decode(_read_bytes(path))))


def _read_bytes(path: str) -> bytes:
    try:
        status = os.stat(path)
        if stat.S_ISDIR(status.st_mode):
            raise UnreadableError("it is a folder")
        if not stat.S_ISREG(status.st_mode):
            raise UnreadableError("it is not a regular file")
        with open(path, "rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UnreadableError((error.strerror or str(error)).lower()) from error
    except ValueError as error:
        raise UnreadableError("its name holds a null character") from error
    if len(content) > MAX_BYTES:
        raise UnreadableError(f"it has {max(status.st_size, len(content)):,} bytes, a plan may have {MAX_BYTES:,}")
    return content


def _decode(content: bytes) -> str:
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise UnreadableError("it is UTF-16 text; plans are UTF-8")
    if b"\0" in content:
        raise UnreadableError("it is a binary file")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UnreadableError(
            f"byte {error.start} (0x{content[error.start]:02x}) is not UTF-8 text; plans are UTF-8"
        ) from error
