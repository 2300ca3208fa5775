"""Tables as text. rich lays them out: it knows how wide characters are, and importing it takes as long as that."""

import io
from collections.abc import Collection, Iterable, Sequence


def table(rows: Iterable[Sequence[str]], head: Sequence[str] = (), right: Collection[int] = ()) -> str:
    """`rows` of one length as columns with two spaces between, below `head`; columns in `right` are flush right.

    Nothing is cut or wrapped, however narrow the terminal is: what is printed can be searched and piped. Line breaks in
    a cell become spaces. Without rows and head the text is empty.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    rows = [tuple(row) for row in rows]
    if not rows and not head:
        return ""
    drawn = Table(box=None, show_header=bool(head), pad_edge=False, padding=(0, 2, 0, 0))
    for number in range(len(head) or max(map(len, rows), default=0)):
        title = Text(head[number]) if head else ""
        drawn.add_column(title, justify="right" if number in right else "left", no_wrap=True)
    for row in rows:
        drawn.add_row(*(Text(" ".join(cell.splitlines())) for cell in row))
    console = Console(file=io.StringIO(), color_system=None, legacy_windows=False, width=1 << 16, _environ={})
    with console.capture() as capture:
        console.print(drawn)
    return "".join(f"{line.rstrip()}\n" for line in capture.get().splitlines())
