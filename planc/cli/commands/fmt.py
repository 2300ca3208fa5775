"""`planc fmt`."""

import difflib
import os
import stat
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import click

from planc.cli.output import print_reports, write
from planc.cli.status import FOUND, OK, exit_status
from planc.diagnostics.diagnostic import Report
from planc.diagnostics.render.screen import Screen
from planc.diagnostics.render.summary import counted


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="PLAN...")
@click.option("--check", is_flag=True, help="Write nothing; status 1 where a file isn't in canonical form.")
@click.option("--diff", is_flag=True, help="Write nothing; print what would change, status 1 where something would.")
def command(files: tuple[str, ...], check: bool, diff: bool) -> int:
    """Bring plan files into canonical form. Comments stay, and what a plan means never changes."""
    results = [_format(file) for file in files]
    faulty = [result.report for result in results if result.after is None]
    changed = [result for result in results if result.after not in (None, result.before)]
    if faulty:
        print_reports(faulty, "text")
    for result in changed:
        if diff:
            write(_diff(result))
        elif not check:
            _replace(result.file, result.after or "")
    verb = "would change" if check or diff else "changed"
    click.echo(f"{counted(len(files), 'file')}: {len(changed)} {verb}", err=True)
    for result in changed if not diff else ():
        click.echo(f"  {result.file}", err=True)
    return max(exit_status(faulty), FOUND if changed and (check or diff) else OK)


@dataclass(frozen=True, slots=True)
class _Result:
    """A file's text before and after; `after` is None where the file has faults, which `report` holds."""

    file: str
    before: str
    after: str | None
    report: Report


def _format(file: str) -> _Result:
    from planc.syntax.formatting import format_text
    from planc.syntax.parser import parse_plan
    from planc.syntax.source import UnreadableError, read_source

    try:
        text = read_source(file).text
    except UnreadableError:
        return _Result(file, "", None, Report(tuple(parse_plan(file)[1]), {}, file))
    after, found = format_text(text, file)
    # The text as it is on disk, whose line ends and byte order mark the canonical form may change.
    before = Path(file).read_bytes().decode("utf-8", "replace")
    return _Result(file, before, after, Report(tuple(found), {file: text}, file))


def _diff(result: _Result) -> str:
    lines = difflib.unified_diff(
        result.before.splitlines(keepends=True),
        (result.after or "").splitlines(keepends=True),
        result.file,
        result.file,
    )
    paint = Screen.of(sys.stdout).paint
    roles = {"+": "added", "-": "removed", "@": "secondary"}
    return "".join(paint(line.removesuffix("\n"), roles.get(line[0], "")) + "\n" for line in lines)


def _replace(file: str, text: str) -> None:
    """Write `text` to `file` in one step, so that an interrupt leaves the old file or the new one.

    The draft beside it is made exclusively, under a name that nobody can guess: a link that lies there already, as a
    repository may bring one, is never written through.
    """
    target = Path(os.path.realpath(file))
    draft = None
    try:
        handle, draft = tempfile.mkstemp(dir=target.parent, prefix=".", suffix=".planc")
        with os.fdopen(handle, "wb") as written:
            written.write(text.encode())
            os.fchmod(handle, stat.S_IMODE(target.stat().st_mode))
        os.replace(draft, target)
    except OSError as error:
        if draft is not None:
            Path(draft).unlink(missing_ok=True)
        raise click.FileError(file, error.strerror or str(error)) from None
