"""The rank picture as a standalone SVG."""

from collections.abc import Iterator
from xml.sax.saxutils import escape

from planc.layouts.picture import Picture, Row

CELL, HEIGHT, NAMES = 64, 30, 110
RANKS_PER_LINE = 16
# One hue a group, by position; light enough for black text.
HUES = (205, 35, 140, 280, 0, 170, 60, 320)


def render_svg(picture: Picture) -> str:
    """Draw `picture`; 16 ranks a line, boxes of one colour belong to one group."""
    lines = range(0, len(picture.ranks), RANKS_PER_LINE)
    line_height = (len(picture.rows) + 1) * HEIGHT
    width = NAMES + CELL * min(RANKS_PER_LINE, len(picture.ranks)) + 10
    body = [text for number, start in enumerate(lines) for text in _line(picture, start, number * line_height)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{line_height * len(lines)}" '
        'font-family="monospace" font-size="12">\n' + "\n".join(body) + "\n</svg>\n"
    )


def _line(picture: Picture, start: int, top: int) -> Iterator[str]:
    for number, row in enumerate(picture.rows):
        y = top + number * HEIGHT
        yield f'<text x="4" y="{y + 19}">{escape(row.name)}</text>'
        yield from _boxes(row, start, start + RANKS_PER_LINE, y)


def _boxes(row: Row, start: int, end: int, y: int) -> Iterator[str]:
    hues: dict[str, int] = {}
    position = 0
    for cell in row.cells:
        first, last = max(start, position), min(end, position + cell.count)
        position += cell.count
        hue = hues.setdefault(cell.text, HUES[len(hues) % len(HUES)])
        if first >= last:
            continue
        x, width = NAMES + (first - start) * CELL, (last - first) * CELL
        fill = "none" if row.name == "rank" else f"hsl({hue}, 70%, 85%)"
        yield f'<rect x="{x + 1}" y="{y + 1}" width="{width - 2}" height="{HEIGHT - 2}" fill="{fill}" stroke="#888"/>'
        yield f'<text x="{x + width // 2}" y="{y + 19}" text-anchor="middle">{escape(cell.text)}</text>'
