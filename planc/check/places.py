"""Where sizes stand in the plan, and how concrete names and numbers are said."""

import re
from collections.abc import Iterable, Sequence
from math import isqrt

from planc.check.rule import CheckContext
from planc.diagnostics.diagnostic import Label
from planc.diagnostics.span import Span

# Sizes of plans and head counts of manifests may be any number.
MOST_TRIED = 1 << 16


def size_span(context: CheckContext, *names: str) -> Span | None:
    """The place of the first of the sizes or options `names` that the plan or the command line gives."""
    plan = context.plan
    given = [(plan.sizes.get(name) or plan.options.get(name)) for name in names]
    return next((value.span for value in given if value is not None), None)


def size_labels(context: CheckContext, *names: str) -> tuple[Label, ...]:
    """A label at each of the sizes `names` that was given."""
    spans = [(name, size_span(context, name)) for name in names]
    return tuple(Label(span, "from here") for _, span in spans if span is not None)


def divisors(number: int, most: int | None = None) -> list[int]:
    """The divisors of `number`, up to `most`; of one beyond `MOST_TRIED` squared those that are quickly found."""
    small = [n for n in range(1, min(isqrt(number), MOST_TRIED) + 1) if number % n == 0]
    found = sorted({*small, *(number // n for n in small)})
    return [n for n in found if most is None or n <= most]


def listed(values: Iterable[object]) -> str:
    """`1, 2, 4`, shortened in the middle where there are many."""
    words = [str(value) for value in values]
    return ", ".join(words if len(words) <= 12 else [*words[:10], "…", words[-1]])


def ranges(numbers: Iterable[int]) -> str:
    """`0-3, 7, 11`: sorted numbers, runs of three and more drawn together."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    words = [f"{r[0]}-{r[-1]}" if len(r) > 2 else ", ".join(map(str, r)) for r in runs]
    return ", ".join(words)


def layer_number(name: str) -> int | None:
    """The first number among the segments of `name`."""
    found = re.search(r"(?:^|\.)(\d+)(?:\.|$)", name)
    return int(found[1]) if found else None


def layers_of(targets: Sequence[str]) -> str:
    """`layers 3, 7, 11`, or an empty string where `targets` belong to no layer."""
    numbers = [number for number in map(layer_number, targets) if number is not None]
    return f"layers {ranges(numbers)}" if numbers else ""


def counted(number: int, noun: str) -> str:
    """`1 module`, `48 modules`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
