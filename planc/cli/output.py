"""Writing results to stdout or to a file."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from planc.diagnostics.diagnostic import Report
from planc.diagnostics.render import FORMATS, render
from planc.diagnostics.render.screen import Screen

output_format = click.option(
    "--output-format", type=click.Choice(FORMATS), default="text", show_default=True, help="How findings are printed."
)
output_file = click.option(
    "-o", "--output", type=click.Path(dir_okay=False), metavar="FILE", help="Write there instead of to stdout."
)


def write(text: str, file: str | None = None) -> None:
    """`text` to `file`, or to stdout, whatever stdout's encoding is.

    Raises click.ClickException where that fails, BrokenPipeError where nobody reads stdout.
    """
    if file is not None:
        try:
            Path(file).write_text(text, encoding="utf-8")
        except OSError as error:
            raise click.FileError(file, error.strerror or str(error)) from None
        return
    encoding = sys.stdout.encoding or "utf-8"
    try:
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        discard_stdout()
        raise click.ClickException(f"can't write to stdout: {error.strerror}") from None


def printable(text: str) -> str:
    """`text` with its lines as they are, and names in it that would steer a terminal as escapes."""
    screen = Screen.of(sys.stdout)
    return "\n".join(map(screen.show, text.split("\n")))


def discard_stdout() -> None:
    """Let the interpreter's last flush succeed after stdout failed."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_reports(reports: Sequence[Report], name: str) -> None:
    """`reports` to stdout in the format `name`."""
    write(render(name, reports, Screen.of(sys.stdout)))
