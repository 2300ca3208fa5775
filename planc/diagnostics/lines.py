"""Lines of a source text, counted as YAML counts them."""

import re

_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")


def split_lines(text: str) -> list[str]:
    """The lines of `text` without their breaks; a text that ends in a break has an empty last line."""
    return _BREAK.split(text)


def line_starts(text: str) -> list[int]:
    """The offset of each line's first character in `text`."""
    return [0, *(match.end() for match in _BREAK.finditer(text))]
