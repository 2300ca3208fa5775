"""How far a long command is, on a terminal alone."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(total: int) -> Iterator[Callable[[str], None]]:
    """Gives a function to call with the name of each of `total` pieces of work, before it begins.

    Where stderr is a terminal, a bar there says which piece is in work and for how long; it is gone at the end.
    Elsewhere nothing is printed: logs and files get results alone.
    """
    if not sys.stderr.isatty():
        yield lambda name: None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from planc.diagnostics.render.screen import Screen

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    console, screen = Console(file=sys.stderr), Screen.of(sys.stderr)
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True, redirect_stdout=False) as bar:
        task = bar.add_task("", total=total)
        started = 0

        def begin(name: str) -> None:
            nonlocal started
            bar.update(task, description=escape(screen.show(name)), completed=started)
            started += 1

        yield begin
