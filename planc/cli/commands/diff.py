"""`planc diff`."""

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from planc.analysis import Analysis
from planc.api import is_program_file
from planc.cli.inputs import Inputs, inputs
from planc.cli.output import write
from planc.cli.status import FOUND, OK, USAGE, exit_status
from planc.diagnostics.render import render
from planc.diagnostics.render.screen import Screen

if TYPE_CHECKING:
    from planc.program.program import Program


@click.command()
@inputs
@click.option("--exit-code", is_flag=True, help="Status 1 where there is a difference.")
def command(given: Inputs, exit_code: bool) -> int:
    """Compare two plans, or two compiled programs, by what they do to the model.

    Plans are resolved first, each against MODEL or the model that it names, so that two spellings of the same have no
    difference. Lines with - are what only the first does, lines with + what only the second does.
    """
    words = (given.model, *given.plans) if given.model is not None else given.plans
    if len(words) == 2 and all(is_program_file(word) for word in words):
        lines = _programs(*words)
    elif len(given.plans) == 2:
        lines = _plans(given)
    else:
        raise click.UsageError("name two plans (after MODEL, unless they name it) or two program files")
    if isinstance(lines, int):
        return lines
    roles = {"-": "removed", "+": "added"}
    screen = Screen.of(sys.stdout)
    write("".join(f"{screen.paint(screen.show(line), roles.get(line[0], ''))}\n" for line in lines))
    if not lines:
        click.echo("no difference", err=True)
    return FOUND if lines and exit_code else OK


def _programs(old: str, new: str) -> list[str] | int:
    from planc.program.diff import diff_programs
    from planc.program.errors import ProgramError

    try:
        return diff_programs(_load(old), _load(new))
    except ProgramError as error:
        click.echo(f"planc: {error}", err=True)
        return USAGE


def _load(file: str) -> "Program":
    from pathlib import Path

    from planc.program.program import Program

    return Program.load(Path(file))


def _plans(given: Inputs) -> list[str] | int:
    from planc.program.diff import diff_resolved

    given = replace(given, settings=replace(given.settings, rules=False))
    analyses = [given.analyse(plan) for plan in given.plans]
    old, new = (analysis.context for analysis in analyses)
    if old is None or new is None:
        return _refuse(analyses)
    return diff_resolved(old.resolved, new.resolved)


def _refuse(analyses: list[Analysis]) -> int:
    reports = [analysis.report for analysis in analyses if analysis.report.diagnostics]
    click.echo(render("text", reports, Screen.of(sys.stderr)), err=True, nl=False)
    return exit_status(reports)
