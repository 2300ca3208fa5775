"""What goes wrong with a program, as one message with all its faults."""

import re
from collections.abc import Iterable

# Of a message: how many faults are in it, and how long each may be.
MOST_SHOWN = 50
MOST_CHARACTERS = 1000


class ProgramError(Exception):
    """A plan that can't be compiled, or a program that is damaged or made for another model.

    `message` is one sentence, `faults` lists each thing that is wrong. Never needs a traceback. Names in them may come
    from a file that nobody trusts: the text has one line for each, short enough to read, and nothing that steers a
    terminal.
    """

    def __init__(self, message: str, faults: tuple[str, ...] = ()) -> None:
        lines = [_line(message), *(f"  {_line(fault)}" for fault in faults[:MOST_SHOWN])]
        if len(faults) > MOST_SHOWN:
            lines.append(f"  (and {len(faults) - MOST_SHOWN} more)")
        super().__init__("\n".join(lines))
        self.message = message
        self.faults = faults


def _line(text: str) -> str:
    cut = text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in cut)


def by_kind(faults: Iterable[str]) -> tuple[str, ...]:
    """Faults that differ only in layer numbers as one: the first of them, and how many more there are."""
    kinds: dict[str, list[str]] = {}
    for fault in faults:
        kinds.setdefault(re.sub(r"\.\d+(?=[.`])", ".*", fault), []).append(fault)
    return tuple(
        several[0] if len(several) == 1 else f"{several[0]} (and {len(several) - 1} more like it)"
        for several in kinds.values()
    )
