"""Which known words are closest to one that isn't."""

from collections.abc import Iterable


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


def nearest(word: str, known: Iterable[str], limit: int = 3) -> list[str]:
    """The closest of `known`, best first; only those that share more with `word` than they differ."""
    most = max(2, len(word) // 3)
    ranked = sorted((edit_distance(word, other), other) for other in known if abs(len(word) - len(other)) <= most)
    return [other for distance, other in ranked if distance <= most][:limit]


def or_list(words: Iterable[object]) -> str:
    """`a`, `b` or `c`, each in backquotes."""
    *most, last = [f"`{word}`" for word in words]
    return f"{', '.join(most)} or {last}" if most else last
