"""`planc check`."""

from dataclasses import replace

import click

from planc.analysis import Analysis
from planc.cli.inputs import Inputs, gpus_per_node, inputs
from planc.cli.output import output_format, print_reports, printable, write
from planc.cli.status import exit_status


@click.command()
@inputs
@output_format
@click.option("--select", multiple=True, metavar="CODES", help="Only these rules: codes, beginnings, names; `,` apart.")
@click.option("--ignore", multiple=True, metavar="CODES", help="Not these rules.")
@click.option("--strict", is_flag=True, help="Warnings and unknowns fail too.")
@gpus_per_node
@click.option("--show-types", is_flag=True, help="First the layout type of every value, by kind of layer; text only.")
def command(
    given: Inputs,
    output_format: str,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    strict: bool,
    gpus_per_node: int | None,
    show_types: bool,
) -> int:
    """Check plans against models, before a device is booked.

    MODEL is a hub id, a folder or file with a config.json, the name of a bundled config, a transformers model_type, a
    manifest file, or package.module:factory. Without it each PLAN (*.yaml, *.yml, *.json) is checked against the model
    that it names; without a PLAN the model's own plan is checked. Sizes given here win over the plans'.
    """
    if show_types and output_format != "text":
        raise click.UsageError(f"`--show-types` is text only, not `{output_format}`")
    settings = replace(given.settings, select=codes(select), ignore=codes(ignore), gpus_per_node=gpus_per_node)
    given = replace(given, settings=settings)
    analyses = [given.analyse(plan) for plan in given.plans or (None,)]
    if show_types:
        write(printable("".join(map(_types, analyses))))
    reports = [analysis.report for analysis in analyses]
    print_reports(reports, output_format)
    return exit_status(reports, strict)


def _types(analysis: Analysis) -> str:
    """What flows through the model under one plan; nothing where the plan or the model can't be read."""
    from planc.flow.picture import show

    if analysis.context is None:
        return ""
    title = f"{analysis.report.plan_file or 'the own plan'} on {analysis.report.model_name}"
    return f"{title}\n\n{show(analysis.context.flow)}\n"


def codes(values: tuple[str, ...]) -> tuple[str, ...]:
    """`("PL3,PL4", "dead-rule")` as single codes. Raises click.BadParameter for one that no rule has."""
    wanted = tuple(code.strip() for value in values for code in value.split(",") if code.strip())
    if wanted:
        from planc.cli.rules import all_codes

        known = all_codes().values()
        for code in wanted:
            if not any(k.code.startswith(code) or k.name == code for k in known):
                raise click.BadParameter(f"no rule has the code `{code}`; `planc explain --all` lists them")
    return wanted
