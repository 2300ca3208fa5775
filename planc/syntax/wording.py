"""Pieces of texts that come from outside, fit to stand in a message or in YAML."""

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


def double_quoted(text: str) -> str:
    """`text` in YAML's double quotes, which can spell every text."""
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    if character.isprintable():
        return character
    number = ord(character)
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
