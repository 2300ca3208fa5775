"""`planc show`."""

import sys
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import click

from planc.cli.inputs import Inputs, inputs
from planc.cli.output import output_file, print_reports, write
from planc.cli.status import OK, exit_status
from planc.diagnostics.render.screen import Screen

if TYPE_CHECKING:
    from planc.layouts.layout import Layout
    from planc.layouts.picture import Picture
    from planc.model.manifest import Manifest

MOST_RANKS = 1 << 16


@click.command()
@partial(inputs, words_needed=False)
@click.option("--experts", type=click.IntRange(min=1), metavar="N", help="Number N experts, where no MODEL has some.")
@click.option("--gpus-per-node", type=click.IntRange(min=1), metavar="N", help="Show the node of each rank.")
@click.option("--output-format", type=click.Choice(["text", "json", "svg"]), default="text", show_default=True)
@click.option("--all", "everything", is_flag=True, help="Leave out nothing in the middle of a long picture.")
@output_file
def command(
    given: Inputs,
    experts: int | None,
    gpus_per_node: int | None,
    output_format: str,
    everything: bool,
    output: str | None,
) -> int:
    """Draw which batch, which slices and which experts each rank holds.

    Needs no MODEL where the sizes are given; with one, experts have their numbers and the sizes are checked against it.
    """
    from planc.layouts.picture import picture

    if given.model is None and not given.plans:
        layout = _layout_alone(given)
    else:
        given = replace(given, settings=replace(given.settings, select=("PL2",)))
        analysis = given.analyse(given.plan)
        if analysis.context is None or not analysis.report.ok:
            print_reports([analysis.report], "text")
            return exit_status([analysis.report])
        layout = analysis.context.layout
        experts = _experts(analysis.context.manifest) or experts
    if layout.world_size > MOST_RANKS:
        raise click.UsageError(f"{layout.world_size:,} ranks are too many to draw; the most are {MOST_RANKS:,}")
    try:
        drawn = picture(layout, experts, gpus_per_node)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    write(_render(drawn, output_format, everything), output)
    return OK


def _layout_alone(given: Inputs) -> "Layout":
    """The layout of the sizes on the command line. Raises click.UsageError where they are illegal together."""
    from planc.resolve.layout import derive_layout
    from planc.syntax.plan import Plan

    if faulty := [name for name, size in given.sizes.items() if size is not None and size < 1]:
        raise click.UsageError(f"{', '.join(faulty)} must be 1 or more")
    layout = derive_layout(given.given.over(Plan()), given.settings.world_size)
    ep, tp, ranks = layout.ep_size, layout.tp_size, layout.fsdp_size * layout.tp_size
    if ep > 1 and (ep % tp or ranks % ep):
        raise click.UsageError(
            f"ep_size={ep} must be a multiple of tp_size={tp} and divide fsdp_size * tp_size = {ranks}"
        )
    return layout


def _experts(manifest: "Manifest") -> int | None:
    """How many experts the first of the model's experts modules has."""
    return next((entry.experts.num_experts for entry in manifest.file.modules if entry.experts), None)


def _render(drawn: "Picture", output_format: str, everything: bool) -> str:
    if output_format == "json":
        from planc.layouts.render_json import render_json

        return render_json(drawn)
    if output_format == "svg":
        from planc.layouts.render_svg import render_svg

        return render_svg(drawn)
    from planc.layouts.render_text import render_text

    return render_text(drawn, Screen.of(sys.stdout).width or 100, everything)
