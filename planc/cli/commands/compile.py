"""`planc compile`."""

import sys
from typing import TYPE_CHECKING

import click

from planc.cli.inputs import Inputs, inputs
from planc.cli.output import output_file, write
from planc.cli.status import FOUND, exit_status
from planc.diagnostics.render import render
from planc.diagnostics.render.screen import Screen

if TYPE_CHECKING:
    from planc.program.passes import DumpAfter
    from planc.program.program import Program


@click.command()
@inputs
@output_file
@click.option("--dump-after", metavar="PASS", help="Write the program after PASS (or `all`) to stderr.")
def command(given: Inputs, output: str | None, dump_after: str | None) -> int:
    """Compile a plan into a program: primitive operations on concrete names, hashed.

    The plan is checked first; a plan with errors isn't compiled. Findings go to stderr, the program to stdout or FILE.
    """
    from planc.analysis import PlanError
    from planc.api import lowered
    from planc.program.errors import ProgramError

    analysis = given.analyse(given.plan)
    if analysis.report.diagnostics:
        click.echo(render("text", [analysis.report], Screen.of(sys.stderr)), err=True, nl=False)
    try:
        program = lowered(analysis, _dump(dump_after) if dump_after else None)
    except PlanError as error:
        return exit_status([error.report])
    except ProgramError as error:
        click.echo(f"planc: {error}", err=True)
        return FOUND
    write(program.to_json().decode(), output)
    return exit_status([analysis.report])


def _dump(wanted: str) -> "DumpAfter":
    """Prints programs after the pass `wanted`. Raises click.BadParameter where there is no such pass."""
    from planc.program.lower import PASSES

    names = [step.name for step in PASSES]
    if wanted not in (*names, "all"):
        raise click.BadParameter(f"no pass is called `{wanted}`; there are {', '.join(names)}, and `all`")

    def dump(name: str, program: "Program") -> None:
        if wanted in (name, "all"):
            click.echo(f"# after {name}\n{program.to_json().decode()}", err=True, nl=False)

    return dump
