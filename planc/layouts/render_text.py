"""The rank picture as text, wrapped at group boundaries; long pictures show their two ends."""

from collections.abc import Iterator

from planc.layouts.picture import Picture, Row

# How many blocks of ranks a picture may take before its middle is left out.
MOST_BLOCKS = 8


def render_text(picture: Picture, width: int = 100, everything: bool = False) -> str:
    """Draw `picture` at most `width` columns wide; `everything` prints the middle of a long one, too."""
    name_width = max(len(row.name) for row in picture.rows) + 2
    cell_width = _cell_width(picture)
    total = len(picture.ranks)
    per_block = _ranks_per_block(picture, max(1, (width - name_width) // cell_width))
    starts = list(range(0, total, per_block))
    shown = starts
    if len(starts) > MOST_BLOCKS and not everything:
        shown = [*starts[: MOST_BLOCKS - 1], starts[-1]]
    blocks = [_heading(picture)]
    for start in shown:
        if shown is not starts and start == starts[-1]:
            blocks.append(f"... ranks {shown[-2] + per_block} to {start - 1} go on in the same pattern ...")
        blocks.append("\n".join(_block(picture, start, start + per_block, name_width, cell_width)))
    notes = [f"{row.name:<{name_width}}{row.note}" for row in picture.rows if row.note]
    return "\n\n".join([*blocks, "\n".join(notes)]) + "\n"


def _heading(picture: Picture) -> str:
    layout = picture.layout
    sizes = (("pp", layout.pp_size), ("dp_replicate", layout.dp_replicate_size), ("fsdp", layout.fsdp_size))
    dense = ", ".join(f"{name}_size={size}" for name, size in (*sizes, ("tp", layout.tp_size)) if size > 1)
    ranks = "1 rank" if layout.world_size == 1 else f"{layout.world_size} ranks"
    return ranks + (f": {dense}" if dense else "")


def _cell_width(picture: Picture) -> int:
    """Wide enough for every single cell, and for every box around a spanning one."""
    single = max(len(cell.text) + 2 for row in picture.rows if not row.spanning for cell in row.cells)
    boxes = (-(-(len(cell.text) + 5) // cell.count) for row in picture.rows if row.spanning for cell in row.cells)
    return max(single, 5, *boxes)


def _ranks_per_block(picture: Picture, fitting: int) -> int:
    """The most ranks that fit and don't cut a batch group, if one fits at all."""
    tp = picture.layout.tp_size
    whole = fitting - fitting % tp if fitting >= tp else fitting
    return max(1, min(whole, len(picture.ranks)))


def _block(picture: Picture, start: int, end: int, name_width: int, cell_width: int) -> Iterator[str]:
    for row in picture.rows:
        yield (f"{row.name:<{name_width}}" + "".join(_cells(row, start, end, cell_width))).rstrip()


def _cells(row: Row, start: int, end: int, cell_width: int) -> Iterator[str]:
    position = 0
    for cell in row.cells:
        first, last = max(start, position), min(end, position + cell.count)
        position += cell.count
        if first >= last:
            continue
        columns = (last - first) * cell_width
        if row.spanning:
            yield "[" + f"{cell.text:=^{columns - 3}}" + "] "
        else:
            yield f" {cell.text:<{columns - 1}}"
