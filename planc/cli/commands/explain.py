"""`planc explain`."""

import sys
from difflib import get_close_matches

import click

from planc.cli.output import write
from planc.cli.rules import all_codes
from planc.diagnostics.codes import Code
from planc.diagnostics.render.screen import Screen


@click.command()
@click.argument("code", required=False)
@click.option("--all", "everything", is_flag=True, help="List every code.")
def command(code: str | None, everything: bool) -> int:
    """Print the documentation of a code, such as PL301, or of its name."""
    if everything:
        write("".join(f"{c.code}  {c.severity:<8} {c.name:<34} {_first(c)}\n" for c in all_codes().values()))
        return 0
    if code is None:
        raise click.UsageError("name a CODE, or list them all with --all")
    write(_page(_find(code)))
    return 0


def _find(word: str) -> Code:
    codes = all_codes()
    by_name = {code.name: code for code in codes.values()}
    found = codes.get(word.upper()) or by_name.get(word.lower())
    if found is None:
        near = get_close_matches(word.upper(), codes, 1) or get_close_matches(word.lower(), by_name, 1)
        hint = f"; the nearest is `{near[0]}`" if near else ""
        raise click.UsageError(f"no code `{word}`{hint}; `planc explain --all` lists them")
    return found


def _page(code: Code) -> str:
    title = Screen.of(sys.stdout).paint(f"{code.name} ({code.code}), {code.severity}", "strong")
    return f"{title}\n\n{code.documentation}\n"


def _first(code: Code) -> str:
    return code.documentation.partition("\n")[0]
