"""Which positions of a dim a rank holds, as intervals: exact for blocks, packed parts, slices and joins alike."""

from collections.abc import Iterable

# Sorted or not: in local order. `((0, 4), (8, 12))` holds positions 0 to 3, then 8 to 11.
Pieces = tuple[tuple[int, int], ...]


def length(pieces: Pieces) -> int:
    """How many positions there are."""
    return sum(stop - start for start, stop in pieces)


def joined(intervals: Iterable[tuple[int, int]]) -> Pieces:
    """The same positions with adjacent intervals drawn together and empty ones left out."""
    result: list[tuple[int, int]] = []
    for start, stop in intervals:
        if start >= stop:
            continue
        if result and result[-1][1] == start:
            result[-1] = (result[-1][0], stop)
        else:
            result.append((start, stop))
    return tuple(result)


def chunk(size: int, ranks: int, rank: int) -> Pieces:
    """The block of `rank` in torch's `chunk` sizes: the last ones may be shorter or empty."""
    step = -(-size // ranks)
    return joined([(min(rank * step, size), min((rank + 1) * step, size))])


def strided(size: int, ranks: int, rank: int, parts: int) -> Pieces:
    """The block of `rank` of each of `parts` parts, as torch's `_StridedShard` cuts: into parts first, then each."""
    blocks = (interval for part in range(parts) for interval in chunk(size, parts, part))
    return joined(interval for start, stop in blocks for interval in shifted(chunk(stop - start, ranks, rank), start))


def shifted(pieces: Pieces, by: int) -> Pieces:
    """Every position moved by `by`."""
    return tuple((start + by, stop + by) for start, stop in pieces)


def scaled(pieces: Pieces, factor: int) -> Pieces:
    """Every position replaced by `factor` positions."""
    return joined((start * factor, stop * factor) for start, stop in pieces)


def divided(pieces: Pieces, factor: int) -> Pieces | None:
    """The inverse of `scaled`, or None where an interval cuts through a group of `factor` positions."""
    if any(start % factor or stop % factor for start, stop in pieces):
        return None
    return joined((start // factor, stop // factor) for start, stop in pieces)


def local_slice(pieces: Pieces, start: int, stop: int) -> Pieces:
    """The positions that local indices `start` to `stop` stand for."""
    taken: list[tuple[int, int]] = []
    offset = 0
    for first, last in pieces:
        low, high = max(start, offset), min(stop, offset + last - first)
        if low < high:
            taken.append((first + low - offset, first + high - offset))
        offset += last - first
    return joined(taken)


def within(pieces: Pieces, start: int, stop: int) -> bool:
    """Whether all positions lie in `start` to `stop`."""
    return all(start <= first and last <= stop for first, last in pieces)
