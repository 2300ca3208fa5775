"""Pieces of texts that come from outside, fit to stand in a message."""

from collections.abc import Iterable

MAX_SHOWN = 60


def shown(text: str) -> str:
    """`text` in backticks: on one line, without control characters, and cut after `MAX_SHOWN` characters."""
    printable = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
    return f"`{printable}`" if len(printable) <= MAX_SHOWN else f"`{printable[: MAX_SHOWN - 1]}…`"


def either(words: Iterable[str]) -> str:
    """`a, b or c`."""
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last
