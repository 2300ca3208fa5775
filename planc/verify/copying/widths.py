"""Small numbers that behave like the large ones: same divisibility, same proportions."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from planc.verify.copying.fields import Field, Path, fields, replaced
from planc.verify.copying.roles import Role, role

_LEAST_HEAD_WIDTH = 4
_LEAST_WIDTH = 8
_VOCABULARY = 48
_SPAN = 4
_CHOSEN = 2


@dataclass(frozen=True, slots=True)
class Factors:
    """How much smaller the copy is: `heads` divides head counts, `head_width` the features of a head.

    Widths are divided by both, so that `hidden_size == num_attention_heads * head_dim` stays true where it was.
    """

    heads: int
    head_width: int

    @property
    def width(self) -> int:
        return self.heads * self.head_width


def alike(number: int, small: int, sizes: Sequence[int]) -> bool:
    """Whether both numbers share the same divisors with every mesh size: even splits stay even, uneven ones uneven."""
    return all(math.gcd(number, size) == math.gcd(small, size) for size in sizes)


def candidates(config: Mapping[str, Any], sizes: Sequence[int]) -> Iterator[Factors]:
    """Factors that keep head counts and widths whole and their divisibility, the smallest copy first."""
    all_fields = list(fields(config))
    counts = [f.value for f in all_fields if role(f.name) is Role.HEADS and f.value > 0]
    widths = [
        f.value for f in all_fields if role(f.name) is Role.HEAD_WIDTH and f.value > 0 and "section" not in f.name
    ]
    sections = [sum(section) for section in _sections(config).values()]
    hidden = [f.value for f in all_fields if f.name in ("hidden_size", "n_embd", "d_model")]
    if not any(f.name == "head_dim" for f in all_fields):
        widths += [size // count for size in hidden for count in counts[:1] if size % count == 0]
    # Two heads for each rank, so that a rank's heads can be told from one another; one, where that copy is too large.
    heads, closer = (
        [h for h in (16, 8, 6, 5, 4, 3, 2, 1) if all(_divides_heads(count, h, sizes, least) for count in counts)]
        for least in (2, 1)
    )
    head_widths = [w for w in (64, 32, 16, 8, 4, 2, 1) if all(_divides_width(width, w) for width in widths)]
    head_widths = [w for w in head_widths if all(section % w == 0 for section in sections)]
    found = [
        factors
        for h in (*heads, *closer)
        for w in head_widths
        if all(_keeps_hidden(size, factors.width, counts, sizes) for factors in [Factors(h, w)] for size in hidden)
        for factors in [Factors(h, w)]
    ]
    yield from dict.fromkeys(sorted(found, key=lambda factors: (factors.heads not in heads, -factors.width)))


def _divides_heads(count: int, divisor: int, sizes: Sequence[int], heads_per_rank: int) -> bool:
    least = min(count, heads_per_rank * max(sizes, default=1))
    return count % divisor == 0 and count // divisor >= least and alike(count, count // divisor, sizes)


def _divides_width(width: int, divisor: int) -> bool:
    return (
        width % divisor == 0 and width // divisor >= min(width // 4, _LEAST_HEAD_WIDTH) and (width // divisor) % 2 == 0
    )


def _keeps_hidden(size: int, divisor: int, counts: Sequence[int], sizes: Sequence[int]) -> bool:
    small = size // divisor
    return size % divisor == 0 and small >= min(size, 2 * _LEAST_WIDTH) and alike(size, small, sizes)


def shrink(config: Mapping[str, Any], factors: Factors, sizes: Sequence[int]) -> dict[str, Any]:
    """`config` with small numbers in place of large ones; depth is left alone."""
    everything = list(fields(config))
    chosen = max((min(f.value, _CHOSEN) for f in everything if role(f.name) is Role.CHOSEN), default=1)
    groups = max((f.value for f in everything if role(f.name) is Role.GROUPS), default=1)
    vocabularies = [_vocabulary(f.value, sizes) for f in everything if role(f.name) is Role.VOCABULARY]
    tokens = _special_tokens(everything, min(vocabularies, default=_VOCABULARY))

    sections = {
        path: sections_of(sum(section) // factors.head_width, section) for path, section in _sections(config).items()
    }

    def new(path: Path, value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            return value
        if path[:-1] in sections and isinstance(path[-1], int):
            return sections[path[:-1]][path[-1]]
        field = Field(path, value)
        match role(field.name):
            case Role.HEADS:
                return value // factors.heads
            case Role.HEAD_WIDTH:
                return value // factors.head_width
            case Role.WIDTH:
                return _width(value, factors.width, sizes)
            case Role.VOCABULARY:
                return _vocabulary(value, sizes)
            case Role.EXPERTS:
                return _experts(value, chosen, groups, sizes)
            case Role.CHOSEN:
                return min(value, _CHOSEN)
            case Role.SPAN:
                return min(value, _SPAN)
            case Role.TOKEN:
                return tokens[path]
        return value

    return replaced(config, new)


def _sections(config: Mapping[str, Any]) -> dict[Path, list[int]]:
    """Lists that cut the rotary features into sections, by the path of the list."""
    found: dict[Path, list[int]] = {}
    for field in fields(config):
        if "section" in field.name and isinstance(field.path[-1], int):
            found.setdefault(field.path[:-1], []).append(field.value)
    return found


def sections_of(total: int, like: Sequence[int]) -> list[int]:
    """`total` cut in the proportions of `like`, the rounding left to the first part."""
    rest = [max(1, part * total // sum(like)) for part in like[1:]]
    return [total - sum(rest), *rest]


def _least(number: int, at_least: int, sizes: Sequence[int], multiple_of: int = 1) -> int:
    """The smallest multiple from `at_least` on that is `alike` to `number`, or `number` where there is none below."""
    start = -(-at_least // multiple_of) * multiple_of
    return next((n for n in range(start, number, multiple_of) if alike(number, n, sizes)), number)


def _width(value: int, divisor: int, sizes: Sequence[int]) -> int:
    if value < 2 * _LEAST_WIDTH:
        return value
    if value % divisor == 0 and value // divisor >= _LEAST_WIDTH and alike(value, value // divisor, sizes):
        return value // divisor
    even = 2 - value % 2
    return _least(value, max(_LEAST_WIDTH, value // divisor), sizes, even if even == 2 else 1)


def _vocabulary(value: int, sizes: Sequence[int]) -> int:
    return _least(value, _VOCABULARY, sizes)


def _experts(value: int, chosen: int, groups: int, sizes: Sequence[int]) -> int:
    multiple = groups if groups and value % groups == 0 else 1
    return _least(value, max(4, 2 * chosen, 2 * multiple), sizes, multiple)


def _special_tokens(everything: Sequence[Field], vocabulary: int) -> dict[Path, int]:
    """Special tokens keep their ids where they fit, else get the last ones, each its own."""
    ids = sorted({f.value for f in everything if role(f.name) is Role.TOKEN})
    moved = {old: vocabulary - 1 - rank for rank, old in enumerate(i for i in reversed(ids) if i >= vocabulary // 2)}
    return {f.path: moved.get(f.value, f.value) for f in everything if role(f.name) is Role.TOKEN}
