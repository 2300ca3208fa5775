"""Which names a key names, with the positions of wildcards that transformers has."""

import re
from functools import cache

from planc.syntax.plan import Indices, Key, Segment, Wildcard

_CANONICAL_NUMBER = "(0|[1-9][0-9]*)"


def generic_name(name: str) -> str:
    """`name` with layer numbers replaced by `*`, exactly as transformers 5.24.0 does it.

    Source: `transformers/distributed/parallel_utils.py`, `replace_layer_number_by_wildcard`. Of two numeric segments
    in a row only the first is replaced, and a leading one never is: that is how transformers behaves.
    """
    return re.sub(r"\.\d+(\.|$)", lambda m: ".*" + m.group(1), name)


def is_wildcard_position(segments: tuple[Segment, ...], position: int) -> bool:
    """Whether transformers would put a `*` for the number at `position`, all that stand before it given.

    In a run of numeric segments every other one becomes a wildcard, because the match of one eats the dot that the
    next would need; the first of a run does, unless it leads the name.
    """
    first = position
    while first > 0 and _is_numeric(segments[first - 1]):
        first -= 1
    return (position - first) % 2 == (1 if first == 0 else 0)


def key_matches(key: Key, name: str) -> bool:
    """Whether `key` names the module or parameter `name`.

    `*` takes a number exactly where transformers has its wildcard; an index or index set takes a number of the set
    anywhere; a name takes itself. For a key without numbers that is `key.text == generic_name(name)`.
    """
    return _matches(key.segments, name)


def _matches(segments: tuple[Segment, ...], name: str) -> bool:
    pattern = _pattern(segments)
    if pattern is None or (found := pattern.fullmatch(name)) is None:
        return False
    sets = (s for s in segments if isinstance(s, Indices))
    return all(int(number) in indices for number, indices in zip(found.groups(), sets, strict=True))


def _is_numeric(segment: Segment) -> bool:
    return isinstance(segment, Wildcard | Indices)


@cache
def _pattern(segments: tuple[Segment, ...]) -> re.Pattern[str] | None:
    """What `segments` may match, one group for each index set; None if a `*` can never stand where it does."""
    parts = []
    for position, segment in enumerate(segments):
        if isinstance(segment, Wildcard):
            if not is_wildcard_position(segments, position):
                return None
            parts.append(r"\d+")
        elif isinstance(segment, Indices):
            parts.append(_CANONICAL_NUMBER)
        else:
            parts.append(f"(?:{'|'.join(map(re.escape, segment.alternatives))})")
    return re.compile(r"\.".join(parts))
