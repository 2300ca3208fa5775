"""Which names a key names, with the positions of wildcards that transformers has."""

import re
from functools import cache

from planc.syntax.plan import Indices, Key, Segment, Wildcard, has_wildcard_at

# As nn.ModuleList counts; the bound is that of the numbers in keys.
_CANONICAL_NUMBER = "(0|[1-9][0-9]{0,5})"


def generic_name(name: str) -> str:
    """`name` with layer numbers replaced by `*`, exactly as transformers 5.24.0 does it.

    Source: `transformers/distributed/parallel_utils.py`, `replace_layer_number_by_wildcard`. Of two numeric segments
    in a row only the first is replaced, and a leading one never is: that is how transformers behaves.
    """
    return re.sub(r"\.\d+(\.|$)", lambda m: ".*" + m.group(1), name)


def key_matches(key: Key, name: str) -> bool:
    """Whether `key` names the module or parameter `name`.

    `*` takes a number exactly where transformers has its wildcard; an index or index set takes a number of the set
    anywhere; a name takes itself. For a portable key that is `key.text == generic_name(name)`.
    """
    return _matches(key.segments, name)


def _matches(segments: tuple[Segment, ...], name: str) -> bool:
    pattern = _pattern(segments)
    if pattern is None or (found := pattern.fullmatch(name)) is None:
        return False
    sets = (s for s in segments if isinstance(s, Indices))
    return all(int(number) in indices for number, indices in zip(found.groups(), sets, strict=True))


@cache
def _pattern(segments: tuple[Segment, ...]) -> re.Pattern[str] | None:
    """What `segments` may match, one group for each index set; None if a `*` can never stand where it does."""
    parts = []
    for position, segment in enumerate(segments):
        if isinstance(segment, Wildcard):
            if not has_wildcard_at(segments, position):
                return None
            parts.append(r"\d+")
        elif isinstance(segment, Indices):
            parts.append(_CANONICAL_NUMBER)
        else:
            parts.append(f"(?:{'|'.join(map(re.escape, segment.alternatives))})")
    return re.compile(r"\.".join(parts))
