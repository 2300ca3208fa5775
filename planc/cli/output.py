"""Writing results to stdout or to a file."""

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
    """`text` to `file`, or to stdout, whatever stdout's encoding is. Raises click.FileError."""
    if file is not None:
        try:
            Path(file).write_text(text, encoding="utf-8")
        except OSError as error:
            raise click.FileError(file, error.strerror or str(error)) from None
        return
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))


def print_reports(reports: Sequence[Report], name: str) -> None:
    """`reports` to stdout in the format `name`."""
    write(render(name, reports, Screen.of(sys.stdout)))
