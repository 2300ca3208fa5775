"""`planc explain`."""

import sys
from dataclasses import replace
from difflib import get_close_matches
from functools import partial

import click

from planc.cli.inputs import Inputs, inputs
from planc.cli.output import print_reports, printable, write
from planc.cli.rules import all_codes
from planc.cli.status import OK, exit_status
from planc.diagnostics.codes import Code
from planc.diagnostics.render.screen import Screen


@click.command()
@click.argument("what", required=False, metavar="CODE|KEY")
@partial(inputs, words_needed=False)
@click.option("--all", "everything", is_flag=True, help="List every code.")
def command(given: Inputs, what: str | None, everything: bool) -> int:
    """Print the documentation of a code (PL301, kv-heads-not-divisible), or what becomes of a key.

    With KEY and a MODEL or PLAN: which modules and parameters the key names, what each gets, from which rule, and which
    rules that one hides; then what flows into and out of these modules under the TP plan, and where it comes from.
    """
    if everything:
        from planc.diagnostics.render.table import table

        write(table((c.code, str(c.severity), c.name, _first(c)) for c in all_codes().values()))
        return OK
    if what is None:
        raise click.UsageError("name a CODE, or list them all with --all")
    if given.model is None and not given.plans:
        write(_page(_find(what)))
        return OK
    return _explain_key(what, given)


def _explain_key(key: str, given: Inputs) -> int:
    from planc.cli.keys import explain_key

    analysis = replace(given, settings=replace(given.settings, rules=False)).analyse(given.plan)
    if analysis.context is None:
        print_reports([analysis.report], "text")
        return exit_status([analysis.report])
    write(printable(explain_key(key, analysis.context)))
    return OK


def _find(word: str) -> Code:
    codes = all_codes()
    by_name = {code.name: code for code in codes.values()}
    found = codes.get(word.upper()) or by_name.get(word.lower())
    if found is None:
        near = get_close_matches(word.upper(), codes, 1) or get_close_matches(word.lower(), by_name, 1)
        hint = f"; the nearest is `{near[0]}`" if near else ""
        if "." in word:
            hint = f"; if it is a key, name a model too: `planc explain {word} MODEL`"
        raise click.UsageError(f"no code `{word}`{hint}; `planc explain --all` lists them")
    return found


def _page(code: Code) -> str:
    title = Screen.of(sys.stdout).paint(f"{code.name} ({code.code}), {code.severity}", "strong")
    return f"{title}\n\n{code.documentation}\n"


def _first(code: Code) -> str:
    return code.documentation.partition("\n")[0]
