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
from planc.layouts.nodes import MOST_GPUS

if TYPE_CHECKING:
    from planc.check.rule import CheckContext
    from planc.diagnostics.diagnostic import Report
    from planc.layouts.picture import Picture
    from planc.model.manifest import Manifest

MOST_RANKS = 1 << 16
# The rules that need no model: sizes below 1, expert groups, the number of processes, stages with FSDP.
MESH_RULES = ("PL201", "PL202", "PL203", "PL204", "PL206", "PL209", "PL210")


@click.command()
@partial(inputs, words_needed=False)
@click.option("--experts", type=click.IntRange(min=1), metavar="N", help="Number N experts, where no MODEL has some.")
@click.option("--gpus-per-node", type=click.IntRange(1, MOST_GPUS), metavar="N", help="Show the node of each rank.")
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

    report, context = _judge(given, experts)
    if context is None or not report.ok:
        print_reports([report], "text")
        return exit_status([report])
    layout = context.layout
    experts = _experts(context.manifest) or experts
    if layout.world_size > MOST_RANKS:
        raise click.UsageError(f"{layout.world_size:,} ranks are too many to draw; the most are {MOST_RANKS:,}")
    drawn = picture(layout, experts, gpus_per_node)
    write(_render(drawn, output_format, everything), output)
    return OK


def _judge(given: Inputs, experts: int | None) -> "tuple[Report, CheckContext | None]":
    """What `check` says of the sizes, for the model or for any one with so many experts."""
    if given.model is not None or given.plans:
        given = replace(given, settings=replace(given.settings, select=("PL2",)))
        analysis = given.analyse(given.plan)
        return analysis.report, analysis.context
    from planc.check.checker import run
    from planc.check.rule import CheckContext
    from planc.diagnostics.diagnostic import Report
    from planc.resolve.layout import derive_layout
    from planc.resolve.resolver import resolve
    from planc.syntax.plan import Plan

    plan = given.given.over(Plan())
    layout, manifest = derive_layout(plan, given.settings.world_size), _any_model(experts)
    context = CheckContext(plan, manifest, layout, resolve(plan, manifest, layout), given.settings.world_size)
    return Report(tuple(run(context, MESH_RULES)), plan.sources, None, ""), context


def _any_model(experts: int | None) -> "Manifest":
    """Nothing but `experts` experts: enough for the rules about meshes."""
    from planc.model.manifest import Experts, Manifest, ManifestFile, ModuleEntry, ParameterEntry, Plans

    weight = ParameterEntry(name="weight", shape=(experts or 1,), dtype="bfloat16")
    modules = [ModuleEntry(name="", class_name="Model")]
    if experts is not None:
        held = Experts(num_experts=experts)
        modules.append(ModuleEntry(name="experts", class_name="Experts", experts=held, parameters=(weight,)))
    plans = Plans(ep={"experts.weight": "grouped_gemm", "experts": "ep_dispatch_experts"})
    return Manifest(ManifestFile(name="any model", class_name="Model", modules=tuple(modules), plans=plans))


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
