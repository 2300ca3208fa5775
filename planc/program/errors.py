"""What goes wrong with a program, as one message with all its faults."""

import re
from collections.abc import Iterable


class ProgramError(Exception):
    """A plan that can't be compiled, or a program that is damaged or made for another model.

    `message` is one sentence, `faults` lists each thing that is wrong. Never needs a traceback.
    """

    def __init__(self, message: str, faults: tuple[str, ...] = ()) -> None:
        super().__init__("\n".join((message, *(f"  {fault}" for fault in faults))))
        self.message = message
        self.faults = faults


def by_kind(faults: Iterable[str]) -> tuple[str, ...]:
    """Faults that differ only in layer numbers as one: the first of them, and how many more there are."""
    kinds: dict[str, list[str]] = {}
    for fault in faults:
        kinds.setdefault(re.sub(r"\.\d+(?=[.`])", ".*", fault), []).append(fault)
    return tuple(
        several[0] if len(several) == 1 else f"{several[0]} (and {len(several) - 1} more like it)"
        for several in kinds.values()
    )
