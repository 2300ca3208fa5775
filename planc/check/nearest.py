"""Which known words are closest to one that isn't."""

from collections.abc import Collection, Iterable


def edit_distance(left: str, right: str) -> int:
    """Insertions, deletions, substitutions and swaps of neighbours (optimal string alignment)."""
    before: list[int] = []
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, start=1):
        before, last, row = row, before, [i]
        for j, b in enumerate(right, start=1):
            best = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (a != b))
            if i > 1 and j > 1 and a == right[j - 2] and left[i - 2] == b:
                best = min(best, last[j - 2] + 1)
            row.append(best)
    return row[-1]


def nearest(word: str, known: Collection[str], limit: int = 3) -> list[str]:
    """The closest of `known`, best first: a few letters away, or spelt out where `word` is an abbreviation."""
    ranked = sorted((edit_distance(word, other), other) for other in known)
    close = [other for distance, other in ranked if distance <= max(2, len(word) // 3)]
    spelt_out = sorted((other for other in known if _abbreviates(word, other)), key=len)
    far = [other for distance, other in ranked if distance <= max(len(word), len(other)) * 2 // 5]
    return (close or spelt_out or far)[:limit]


def _abbreviates(word: str, other: str) -> bool:
    """Whether all letters of `word` stand in `other` in their order, and make up at least half of it."""
    letters = iter(other)
    return word[:1] == other[:1] and 2 * len(word) >= len(other) and all(letter in letters for letter in word)


def or_list(words: Iterable[object]) -> str:
    """`a`, `b` or `c`, each in backquotes."""
    *most, last = [f"`{word}`" for word in words]
    return f"{', '.join(most)} or {last}" if most else last
