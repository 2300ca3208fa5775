"""`planc init`."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from planc.cli.inputs import Inputs, inputs
from planc.cli.output import output_file, write
from planc.cli.status import exit_status
from planc.diagnostics.render import render
from planc.diagnostics.render.screen import Screen
from planc.syntax.wording import double_quoted

if TYPE_CHECKING:
    from planc.check.rule import CheckContext
    from planc.syntax.plan import PlanKind

PLANS: "tuple[PlanKind, ...]" = ("tp", "ep", "fsdp")


@click.command()
@inputs
@output_file
@click.option("--force", is_flag=True, help="Overwrite FILE where it exists.")
def command(given: Inputs, output: str | None, force: bool) -> int:
    """Write a plan file to start from: the model's own rules at the sizes given, each on a line of its own.

    Findings about it go to stderr.
    """
    if given.plans or given.model is None:
        raise click.UsageError("`planc init` takes a MODEL and sizes, no plan")
    if output is not None and Path(output).exists() and not force:
        raise click.UsageError(f"`{output}` exists; --force overwrites it")
    analysis = given.analyse(None)
    if analysis.report.diagnostics:
        click.echo(render("text", [analysis.report], Screen.of(sys.stderr)), err=True, nl=False)
    if analysis.context is not None:
        write(plan_text(given.model, analysis.context), output)
    return exit_status([analysis.report])


def plan_text(model: str, context: "CheckContext") -> str:
    """The plan file for what `context` resolved, in canonical form.

    Raises click.ClickException for a model (a manifest by hand) whose rules aren't rules.
    """
    from planc.syntax.formatting import format_text

    draft = "".join(f"{line}\n" for line in _lines(model, context))
    text, found = format_text(draft, "<init>")
    if text is None:
        raise click.ClickException(f"the model's own plan can't be written to a file: {found[0].message}")
    return text


def _lines(model: str, context: "CheckContext") -> Iterator[str]:
    yield f"model: {_quoted(model)}"
    for sizes in (context.plan.sizes, context.plan.options):
        yield from (f"{name}: {_quoted(str(size.value))}" for name, size in sizes.items())
    for kind in PLANS:
        # Of the model's rules only those in effect: others would be dead or hidden rules of the user's.
        in_effect = {assignment.rule for assignment in context.resolved.plan(kind).values()}
        rules = [rule for rule in context.resolved.rules[kind] if rule in in_effect]
        if rules:
            yield f"{kind}_plan:"
            yield from (f"  {_quoted(rule.key.text)}: {_quoted(rule.style.text)}" for rule in rules)


def _quoted(text: str) -> str:
    """`text` as a YAML scalar; the formatter takes off quotes that aren't needed."""
    if text.isdecimal():
        return text
    return "'" + text.replace("'", "''") + "'" if text.isprintable() else double_quoted(text)
