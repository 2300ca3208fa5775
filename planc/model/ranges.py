"""Layer numbers as products of inclusive ranges: `"3-60;0-255"` is layers 3 to 60, experts 0 to 255 of each."""

import re
from collections.abc import Iterable, Iterator
from itertools import product
from math import prod

_ITEM = re.compile(r"[0-9]{1,9}(-[0-9]{1,9})?(;[0-9]{1,9}(-[0-9]{1,9})?)*")

Ranges = tuple[range, ...]


def parse(item: str) -> Ranges:
    """One range per `*` of a name. Raises ValueError where `item` is no product of ranges or a range is reversed."""
    if not _ITEM.fullmatch(item):
        raise ValueError(f"`{item[:40]}` is not of the form `0-47` or `0-47;0-7`")
    ranges = []
    for part in item.split(";"):
        first, _, last = part.partition("-")
        ranges.append(range(int(first), int(last or first) + 1))
        if not ranges[-1]:
            raise ValueError(f"`{item[:40]}` has a range that ends before it starts")
    return tuple(ranges)


def count(ranges: Ranges) -> int:
    """How many number tuples `ranges` stands for, without listing them."""
    return prod(len(r) for r in ranges)


def expand(ranges: Ranges) -> Iterator[tuple[int, ...]]:
    """Every number tuple, the last number the fastest."""
    return product(*ranges)


def compress(numbers: Iterable[tuple[int, ...]]) -> tuple[str, ...]:
    """The fewest items this greedy method finds for a set of equally long, non-empty tuples; sorted and unique."""
    return tuple(_compress(sorted(set(numbers))))


def _compress(numbers: list[tuple[int, ...]]) -> Iterator[str]:
    if len(numbers[0]) == 1:
        rests: dict[int, tuple[str, ...]] = {n: ("",) for (n,) in numbers}
    else:
        groups: dict[int, list[tuple[int, ...]]] = {}
        for first, *rest in numbers:
            groups.setdefault(first, []).append(tuple(rest))
        rests = {first: tuple(f";{item}" for item in _compress(group)) for first, group in groups.items()}
    start = last = next(iter(rests))
    for number in [*list(rests)[1:], -1]:
        if number == last + 1 and rests[number] == rests[start]:
            last = number
            continue
        text = str(start) if start == last else f"{start}-{last}"
        yield from (text + rest for rest in rests[start])
        start = last = number
